"""What schemathesis has to be told of NDJSON."""

import json

import schemathesis


@schemathesis.deserializer("application/x-ndjson")
def ndjson(context, response):
    """Results, one a line. The description has the shape of a line: all lines must be
    JSON objects numbered in order, and the first is held against the shape."""
    results = [json.loads(line) for line in response.content.splitlines()]
    numbers = [result["line"] for result in results]
    assert numbers == sorted(set(numbers)), numbers
    for result in results:
        assert ("raw_id" in result) == (result["status"] == 202), result
        assert ("error" in result) == (result["status"] != 202), result
    return results[0]

"""The world `plugin` of wit/1.0.0/cdr.wit: the host's questions, answered batch
by batch.
"""

from componentize_py_types import Err, Ok, Result
from wit_world import exports
from wit_world.imports import types
from wit_world.imports.types import Reason, ViolationCode

import record as rules
from columns import columns, payloads

_CODES = {
    Reason.MALFORMED_JSON: ViolationCode.MALFORMED_JSON,
    Reason.MISSING_REQUIRED_FIELD: ViolationCode.MISSING_REQUIRED_FIELD,
}

# As `configure` left them: every batch starts from there.
settings = rules.Settings()


class Normalizer(exports.Normalizer):
    """What componentize-py exports; the name is that of the interface."""

    def configure(self, text: str) -> None:
        global settings
        try:
            settings = rules.Settings.read(text)
        except ValueError as error:
            raise Err(str(error)) from None

    def describe(self) -> types.Manifest:
        description = "Messages of an imaginary SMS hub, in Python."
        return types.Manifest("sms-hub", "1.0.0", description, rules.COLUMNS)

    def admit(self, batch: types.Batch) -> list[Result[types.Admission, types.Violation]]:
        answers: list[Result[types.Admission, types.Violation]] = []
        for payload in payloads(batch):
            try:
                key, source = rules.admit(rules.parse(payload))
                answers.append(Ok(types.Admission(key, source)))
            except rules.Refused as refused:
                code = _CODES.get(refused.reason, ViolationCode.INVALID_TYPE)
                answers.append(Err(types.Violation(code, refused.field, refused.detail)))
        return answers

    def normalize(self, batch: types.Batch) -> types.Outcome:
        numbers, rows, rejections = [], [], []
        for number, (payload, received_at) in enumerate(zip(payloads(batch), batch.received_at)):
            try:
                rows.append(rules.normalize(rules.parse(payload), received_at, settings))
                numbers.append(number)
            except rules.Refused as refused:
                rejections.append(
                    types.Rejection(number, refused.reason, refused.field, refused.detail)
                )
        return types.Outcome(numbers, columns(rules.COLUMNS, rows), rejections)

//! What a batch costs: counted, the same each time, and bounded.

mod common;

use cdr_plugin_host::Batch;
use cdr_plugin_host::measure::{Costs, MeasureError};
use common::{host, hostile, tight};

async fn measure(payloads: &[&str]) -> Result<Costs, MeasureError> {
    let wasm = std::fs::read(hostile()).unwrap();
    let batch = Batch::of(payloads.iter().map(|payload| payload.as_bytes()), 0).unwrap();
    host(tight()).measure(wasm, "{}", batch).await
}

#[tokio::test]
async fn the_same_batch_costs_the_same_and_more_records_cost_more() {
    let few = measure(&["a"; 10]).await.unwrap();
    assert_eq!(measure(&["a"; 10]).await.unwrap(), few);
    let many = measure(&["a"; 1000]).await.unwrap();
    for (few, many) in [(few.admit, many.admit), (few.normalize, many.normalize)] {
        let each = (many.instructions - few.instructions) / 990;
        assert!(
            (10..100_000).contains(&each),
            "{each} instructions a record"
        );
        assert!(few.memory_bytes > 0 && many.memory_bytes >= few.memory_bytes);
    }
}

#[tokio::test]
async fn a_failure_is_told_with_the_function() {
    let said = measure(&["trap"]).await.unwrap_err().to_string();
    assert!(
        said.contains("`admit`") && said.contains("poison"),
        "{said}"
    );
}

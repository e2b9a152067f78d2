//! What the host promises, whatever a guest does, said once: tried with one
//! poison among good records.

use crate::common::{host, tight};
use cdr_plugin_host::{
    Admitted, Batch, Fault, Limits, LoadError, Normalized, Normalizer, PluginHost, Values,
};
use std::time::Duration;

/// Limits for guests that run into the deadline: short, since each does so
/// several times. Good batches of these tests take a thousandth of it.
pub fn hasty() -> Limits {
    Limits {
        call_base: Duration::from_millis(500),
        load: Duration::from_secs(3),
        ..tight()
    }
}

pub fn batch(payloads: &[&[u8]]) -> Batch {
    Batch::of(payloads.iter().copied(), 0).expect("a small batch")
}

/// Loads hand-made bytes, which must be acceptable.
pub async fn load(host: &PluginHost, wasm: Vec<u8>, name: &str) -> Normalizer {
    match host.load(wasm, "{}").await {
        Ok(normalizer) => normalizer,
        Err(error) => panic!("{name}: {error}"),
    }
}

/// Loads bytes that must be refused, and another guest after them.
pub async fn refusal(host: &PluginHost, wasm: Vec<u8>, settings: &str) -> LoadError {
    let error = host
        .load(wasm, settings)
        .await
        .expect_err("it must be refused");
    let good = crate::wat_guest::guest(&[]);
    host.load(good, "{}").await.expect("the host still loads");
    let said = error.to_string();
    assert!(said.len() <= 2048, "what it says is bounded: {said}");
    assert!(
        !said.contains(|letter: char| letter.is_control() && letter != '\n'),
        "and fit for a terminal: {said:?}"
    );
    error
}

/// The poison alone is answered as a fault, the records around it as if it had
/// not been there, and the next batch is served.
pub async fn only_the_poison_fails(normalizer: &Normalizer, poison: &[u8]) -> Fault {
    let name = String::from_utf8_lossy(&poison[..poison.len().min(40)]).into_owned();
    let payloads: [&[u8]; 4] = [b"a", poison, b"b", b"c"];
    let normalized = normalizer
        .normalize(batch(&payloads))
        .await
        .expect("the host lives");
    let [(1, fault)] = normalized.faults.as_slice() else {
        panic!("{name}: {:?}", normalized.faults);
    };
    assert_eq!(rows(&normalized), [0, 2, 3], "{name}: the good records");
    assert!(normalized.rejections.is_empty(), "{name}");
    is_bounded(fault, &name);

    let next = normalizer.normalize(batch(&[b"x"])).await.expect("lives");
    assert_eq!(rows(&next), [0], "{name}: the next batch");
    assert!(next.faults.is_empty(), "{name}: the next batch");
    fault.clone()
}

/// The same for admission.
pub async fn only_the_poison_is_not_admitted(normalizer: &Normalizer, poison: &[u8]) -> Fault {
    let name = String::from_utf8_lossy(&poison[..poison.len().min(40)]).into_owned();
    let payloads: [&[u8]; 3] = [b"a", poison, b"b"];
    let answers = normalizer.admit(batch(&payloads)).await.expect("lives");
    let [Admitted::Yes(_), Admitted::Fault(fault), Admitted::Yes(_)] = answers.as_slice() else {
        panic!("{name}: {answers:?}");
    };
    is_bounded(fault, &name);
    let next = normalizer.admit(batch(&[b"x"])).await.expect("lives");
    assert!(matches!(next.as_slice(), [Admitted::Yes(_)]), "{name}");
    fault.clone()
}

fn is_bounded(fault: &Fault, name: &str) {
    assert!(fault.detail.len() <= 512, "{name}: the detail is bounded");
    assert!(fault.stderr.len() <= 16 << 10, "{name}: stderr is bounded");
    for text in [&fault.detail, &fault.stderr] {
        assert!(
            !text.contains(|letter: char| letter.is_control() && letter != '\n' && letter != '\t'),
            "{name}: fit for a terminal: {text:?}"
        );
    }
}

/// All that a fault says.
pub fn said(fault: &Fault) -> String {
    format!("{fault} {}", fault.stderr)
}

/// The records that became rows.
pub fn rows(normalized: &Normalized) -> Vec<u32> {
    let parts = normalized.parts.iter();
    parts.flat_map(|part| part.rows.clone()).collect()
}

/// The texts of the first column.
pub fn texts(normalized: &Normalized) -> Vec<String> {
    let mut texts = Vec::new();
    for part in &normalized.parts {
        let Values::Blobs(blobs) = &part.columns[0].values else {
            panic!("texts are blobs");
        };
        texts.extend(blobs.offsets.windows(2).map(|ends| {
            let bytes = &blobs.data[ends[0] as usize..ends[1] as usize];
            String::from_utf8(bytes.to_vec()).expect("validated")
        }));
    }
    texts
}

/// What the hostile guest answers to a question, alone in a batch.
pub async fn answer(normalizer: &Normalizer, question: &str) -> String {
    let asked = format!("ask {question}");
    let normalized = normalizer
        .normalize(batch(&[asked.as_bytes()]))
        .await
        .expect("the host lives");
    match texts(&normalized).pop() {
        Some(text) => text,
        None => panic!("{question}: {:?}", normalized.faults),
    }
}

/// The hostile guest with these settings, in a host with tight limits.
pub async fn hostile_with(settings: &str) -> Normalizer {
    host(tight())
        .load_file(&crate::common::hostile(), settings)
        .await
        .expect("it loads")
}

//! Normalizing batches of 1,000 records: native, and in the sandbox with limits
//! and deadline on, each batch in a fresh instance. In one run, so that the
//! figures can be compared.
#![allow(missing_docs, reason = "made by criterion's macros")]

use cdr_normalizer::CdrNormalizer;
use cdr_plugin_host::{Batch, HostConfig, Normalizer, PluginHost};
use cdr_plugin_sdk::native;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::path::PathBuf;

const RECEIVED_AT_MS: i64 = 1_700_086_400_000;
const RECORDS: usize = 1000;
const SETTINGS: &str = r#"{"vendors":{"northern-mobile":{"default_region":"US"},"albion-telecom":{"default_region":"GB"},"hexagone":{"default_region":"FR"}}}"#;

/// Records of about 245 bytes as vendors send them, all good.
fn payloads() -> Vec<Vec<u8>> {
    (0..RECORDS)
        .map(|i| {
            let (vendor, caller) = match i % 3 {
                0 => ("northern-mobile", format!("+1202555{:04}", 100 + i % 100)),
                1 => ("albion-telecom", format!("020 7946 0{:03}", i % 1000)),
                _ => ("hexagone", format!("0033199{:06}", i % 1000)),
            };
            format!(
                r#"{{"raw_id":"{vendor}-{i:06}","vendor_id":"{vendor}","service_type":"voice","radio_access_type":"EUTRAN","cell_id":"001-01-{i:07X}","caller_num":"{caller}","session_start_time":{},"duration_s":{},"imsi":"00101{i:010}"}}"#,
                1_700_000_000 + i,
                i % 600
            )
            .into_bytes()
        })
        .collect()
}

fn load() -> Normalizer {
    let wasm = std::env::var_os("CDR_NORMALIZER_WASM").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/plugins/cdr-normalizer.wasm"),
        PathBuf::from,
    );
    let host = PluginHost::new(&HostConfig::default()).expect("a plugin host");
    futures::executor::block_on(host.load_file(&wasm, SETTINGS))
        .unwrap_or_else(|error| panic!("{}: {error} (just plugin-build makes it)", wasm.display()))
}

fn normalize(criterion: &mut Criterion) {
    let payloads = payloads();
    let bytes: usize = payloads.iter().map(Vec::len).sum();
    println!("{RECORDS} records of {} bytes on average", bytes / RECORDS);
    let slices = || payloads.iter().map(Vec::as_slice);

    let here: CdrNormalizer = native::configure(SETTINGS).expect("settings");
    let native_batch = native::batch(slices(), RECEIVED_AT_MS);
    assert_eq!(native::normalize(&here, &native_batch).rows.len(), RECORDS);

    let sandboxed = load();
    let batch = Batch::of(slices(), RECEIVED_AT_MS).expect("a batch");
    assert_eq!(sandboxed.normalize_here(&batch).rows(), RECORDS);
    let single = Batch::of(slices().take(1), RECEIVED_AT_MS).expect("a batch");
    let empty_line = Batch::of([&b""[..]], RECEIVED_AT_MS).expect("a batch");

    let mut group = criterion.benchmark_group("normalize 1,000 records");
    group.throughput(Throughput::Elements(RECORDS as u64));
    group.bench_function("native", |bencher| {
        bencher.iter(|| native::normalize(&here, &native_batch));
    });
    group.bench_function("sandbox", |bencher| {
        bencher.iter(|| sandboxed.normalize_here(&batch));
    });
    group.finish();

    let mut group = criterion.benchmark_group("one record");
    group.bench_function("native", |bencher| {
        let one = native::batch(slices().take(1), RECEIVED_AT_MS);
        bencher.iter(|| native::normalize(&here, &one));
    });
    group.bench_function("sandbox", |bencher| {
        bencher.iter(|| sandboxed.normalize_here(&single));
    });
    group.bench_function("sandbox, fresh instance and call alone", |bencher| {
        bencher.iter(|| sandboxed.normalize_here(&empty_line));
    });
    group.finish();
}

criterion_group!(benches, normalize);
criterion_main!(benches);

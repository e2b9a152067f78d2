//! Components are not all shaped like those of Rust: what other toolchains make
//! is taken too.

mod common;

use cdr_plugin_host::{Batch, Limits};
use common::{host, hostile};
use wasmparser::{Parser, Payload};

/// The component with so many more core modules, each instantiated once: what
/// the linker of shared libraries and stubs for imports leave behind.
fn with_core_modules(mut component: Vec<u8>, count: usize) -> Vec<u8> {
    let mut depth = 0;
    let mut modules = 0;
    for payload in Parser::new(0).parse_all(&component) {
        match payload.unwrap() {
            Payload::ModuleSection { .. } => {
                modules += usize::from(depth == 1);
            }
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            _ => {}
        }
    }
    let section = |id: u8, body: &[u8]| {
        assert!(body.len() < 128, "lengths of one byte");
        let mut section = vec![id, body.len() as u8];
        section.extend_from_slice(body);
        section
    };
    const CORE_MODULE: u8 = 1;
    const CORE_INSTANCE: u8 = 2;
    for module in modules..modules + count {
        assert!(module < 128, "indices of one byte");
        component.extend(section(CORE_MODULE, b"\0asm\x01\0\0\0"));
        // One instance: of this module, with no arguments.
        component.extend(section(CORE_INSTANCE, &[1, 0, module as u8, 0]));
    }
    component
}

#[tokio::test]
async fn a_component_of_many_core_modules_loads_and_answers() {
    let wasm = with_core_modules(std::fs::read(hostile()).unwrap(), 40);
    let normalizer = host(Limits::default())
        .load(wasm, "{}")
        .await
        .expect("as many modules as CPython with its libraries and stubs");
    let batch = Batch::of([b"a".as_slice()], 0).unwrap();
    let normalized = normalizer.normalize(batch).await.unwrap();
    assert_eq!(normalized.rows(), 1, "{:?}", normalized.faults);
}

//! What it says of itself; the settings tell how to lie.

use crate::misbehave::{endless, hoard};
use cdr_plugin_sdk::bindings::{ColumnSpec, ColumnType, Manifest};
use std::cell::Cell;

std::thread_local! {
    static DESCRIBED: Cell<u32> = const { Cell::new(0) };
}

fn column(name: &str, kind: ColumnType, nullable: bool) -> ColumnSpec {
    ColumnSpec {
        name: name.to_owned(),
        kind,
        nullable,
    }
}

pub fn manifest(settings: &str) -> Manifest {
    let described = DESCRIBED.with(|described| {
        described.set(described.get() + 1);
        described.get()
    });
    let mut manifest = Manifest {
        name: "hostile".to_owned(),
        version: "0.1.0".to_owned(),
        description: "misbehaves on command".to_owned(),
        columns: vec![
            column("text", ColumnType::Text, false),
            column("calls", ColumnType::Uint32, true),
        ],
    };
    match settings {
        "describe: trap" => panic!("describe panics"),
        "describe: loop" => endless(),
        "describe: memory" => hoard(),
        "describe: giant" => manifest.description = "x".repeat(8 << 20),
        "describe: novel" => manifest.description = "x".repeat(8 << 10),
        "describe: terminal" => manifest.description = "\u{1b}[2Jnothing wrong here".to_owned(),
        "describe: name" => manifest.name = "../../Etc".to_owned(),
        "describe: version" => manifest.version = "latest".to_owned(),
        "describe: counts" => manifest.version = format!("0.1.{described}"),
        "describe: no columns" => manifest.columns.clear(),
        "describe: columns" => {
            manifest.columns = (0..2000)
                .map(|index| column(&format!("c{index}"), ColumnType::Text, false))
                .collect();
        }
        "describe: twice" => manifest
            .columns
            .push(column("text", ColumnType::Int64, false)),
        "describe: sql" => {
            manifest
                .columns
                .push(column("x` String) --", ColumnType::Text, false));
        }
        "describe: category" => {
            manifest
                .columns
                .push(column("kind", ColumnType::Category, true));
        }
        _ => {}
    }
    manifest
}

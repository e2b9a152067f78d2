//! The two hidden subcommands alone, for the tests of this crate.
//!
//! `cdr-embedded-part embedded broker|clickhouse --data DIR --port N --port-file FILE [--library PATH]`,
//! as `cdr` has them. And `… embedded up DATA LIBRARY`, a parent of both that can be killed.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use cdr_embedded::broker::child::{self as broker, BrokerChildArgs};
use cdr_embedded::clickhouse::child::{self as clickhouse, ClickHouseChildArgs};
use cdr_embedded::{ChildLogs, Embedded, EmbeddedConfig, EmbeddedError};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().skip(2).collect();
    let [part, options @ ..] = args.as_slice() else {
        return usage();
    };
    let options: HashMap<&str, &OsString> = options
        .chunks_exact(2)
        .filter_map(|pair| match pair {
            [name, value] => Some((name.to_str()?, value)),
            _ => None,
        })
        .collect();
    let path = |name| options.get(name).map(PathBuf::from);
    let port = options
        .get("--port")
        .and_then(|port| port.to_str()?.parse().ok())
        .unwrap_or(0);
    let (Some(data), port_file, library) = (path("--data"), path("--port-file"), path("--library"))
    else {
        return usage();
    };
    let outcome = match (part.to_str(), port_file, library) {
        (Some("broker"), Some(port_file), _) => broker::run(BrokerChildArgs {
            data,
            port,
            port_file,
        }),
        (Some("clickhouse"), Some(port_file), Some(library)) => {
            clickhouse::run(ClickHouseChildArgs {
                data,
                port,
                port_file,
                library,
            })
        }
        (Some("up"), _, Some(library)) => up(data, library),
        _ => return usage(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("not a part of this crate's tests");
    ExitCode::from(2)
}

/// Starts both parts, prints their pids, and stays until killed or one of them ends.
fn up(data: PathBuf, library: PathBuf) -> Result<(), EmbeddedError> {
    let failed = |source| EmbeddedError::Untracked {
        name: "runtime".to_owned(),
        source,
    };
    let exe = std::env::current_exe().map_err(failed)?;
    let runtime = tokio::runtime::Runtime::new().map_err(failed)?;
    runtime.block_on(async {
        let logs = ChildLogs::Files(data.join("logs"));
        let mut embedded = Embedded::start(EmbeddedConfig {
            exe,
            data,
            kafka_port: None,
            clickhouse_port: None,
            logs,
            clickhouse_library: Some(library),
        })
        .await?;
        println!("ready");
        embedded.wait_for_exit().await.map(drop)
    })
}

//! `cdr`, the one binary: the two hosts, their provisioning, a whole system on
//! one machine, and tools for normalizers.
//!
//! Here are the command line and the order in which things start and stop; what
//! they do is in the crates that they come from.

mod args;
mod hosts;
mod http_client;
mod plugin;
mod provision;
mod token;

#[cfg(feature = "embedded")]
mod demo;
#[cfg(feature = "embedded")]
mod embedded;
#[cfg(feature = "embedded")]
mod report;
#[cfg(feature = "embedded")]
mod samples;
#[cfg(feature = "embedded")]
mod system;
#[cfg(feature = "embedded")]
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Call detail records from vendors, over Kafka, into ClickHouse; checked and
/// normalized by a WebAssembly component.
#[derive(Debug, Parser)]
#[command(
    name = "cdr",
    version,
    after_help = "Every option can also be set by the variable in brackets.\n\
                  On one machine, without Kafka or ClickHouse: `cdr demo` shows the main job, `cdr up` keeps running."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[allow(clippy::large_enum_variant, reason = "there is one a process")]
#[derive(Debug, Subcommand)]
enum Command {
    /// The API host: takes records over HTTP, has them admitted, publishes them to Kafka
    Api(Box<hosts::ApiCommand>),
    /// The worker host: consumes records, normalizes them, inserts rows, dead-letters the rest
    Worker(Box<hosts::WorkerCommand>),
    /// Makes topics, database and table, or checks that what exists fits
    Provision(Box<provision::ProvisionCommand>),
    /// Broker, ClickHouse, API and worker on this machine, durable in one folder
    #[cfg(feature = "embedded")]
    Up(Box<up::UpCommand>),
    /// Starts the same in a temporary folder, posts the sample, shows what landed
    #[cfg(feature = "embedded")]
    Demo(Box<demo::DemoCommand>),
    /// Looks at normalizers and tries them
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Tokens that let vendors post
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Parts of `cdr up`, as processes of their own
    #[cfg(feature = "embedded")]
    #[command(subcommand, hide = true)]
    Embedded(embedded::EmbeddedCommand),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    #[cfg(feature = "embedded")]
    if std::env::var_os(cdr_embedded::parent::PARENT_PID_VARIABLE).is_some()
        && let Err(error) = cdr_embedded::parent::follow()
    {
        eprintln!("cdr: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match cli.command {
        Command::Api(command) => hosts::in_runtime(command.run()),
        Command::Worker(command) => hosts::in_runtime(command.run()),
        Command::Provision(command) => hosts::in_runtime(command.run()),
        #[cfg(feature = "embedded")]
        Command::Up(command) => hosts::in_runtime(command.run()),
        #[cfg(feature = "embedded")]
        Command::Demo(command) => hosts::in_runtime(command.run()),
        Command::Plugin(command) => hosts::in_runtime(command.run()),
        Command::Token(command) => command.run(),
        // These bring runtimes, or none, of their own.
        #[cfg(feature = "embedded")]
        Command::Embedded(command) => command.run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cdr: {error:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    /// Every option of the hosts has a variable, and says its default.
    #[test]
    fn every_setting_is_shown_with_its_variable() {
        let mut cli = Cli::command();
        for name in ["api", "worker", "provision"] {
            let command = cli.find_subcommand_mut(name).unwrap();
            for option in command
                .get_arguments()
                .filter(|option| option.get_id() != "help")
            {
                assert!(option.get_env().is_some(), "{name}: {}", option.get_id());
                assert!(option.get_help().is_some(), "{name}: {}", option.get_id());
            }
        }
    }
}

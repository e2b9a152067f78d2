//! `cdr plugin status`: what should serve, and what each host runs.

use super::registry::RegistryArgs;
use crate::http_client::HttpClient;
use anyhow::bail;
use cdr_plugin_host::registry::{Activation, RegistryError};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How often hosts are asked while waiting.
const AGAIN: Duration = Duration::from_millis(200);

/// Which hosts.
#[derive(Debug, Clone, clap::Args)]
pub struct HostsArgs {
    /// A host to ask, several times or separated by commas
    #[arg(
        long = "host",
        env = "CDR_HOSTS",
        value_name = "URL",
        value_delimiter = ',',
        default_values = ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]
    )]
    pub hosts: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub struct StatusCommand {
    /// Wait so many seconds until every host runs what is active; exit code 1 if one does not by then
    #[arg(long, value_name = "SECONDS")]
    wait: Option<u64>,
    /// Write JSON instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hosts: HostsArgs,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// What a host says of itself.
struct Seen {
    url: String,
    stats: Result<Value, String>,
}

impl HostsArgs {
    /// Asks a host for the stats that say what it runs.
    pub async fn stats(client: &HttpClient, url: &str) -> Result<Value, String> {
        let url = url.trim_end_matches('/');
        let mut said = String::new();
        // An API host has the one, a worker the other.
        for path in ["/stats", "/internal/stats"] {
            match client.get(&format!("{url}{path}")).await {
                Ok((status, body)) if status.is_success() => {
                    return serde_json::from_slice(&body)
                        .map_err(|error| format!("{path} is no JSON: {error}"));
                }
                Ok((status, _)) => said = format!("{path} answers {status}"),
                Err(error) => said = format!("{error:#}"),
            }
        }
        Err(said)
    }
}

impl StatusCommand {
    pub async fn run(self) -> anyhow::Result<()> {
        let registry = self.registry.registry();
        let active = match registry.active() {
            Err(error @ RegistryError::Activation { .. }) => {
                // What hosts serve is worth a look all the more.
                eprintln!("warning: {error}");
                registry.present()?.ok_or(error)?
            }
            active => active?,
        };
        let client = HttpClient::new();
        let deadline = Instant::now() + Duration::from_secs(self.wait.unwrap_or(0));
        let seen = loop {
            let asked = self.hosts.hosts.iter().map(|url| async {
                Seen {
                    url: url.clone(),
                    stats: HostsArgs::stats(&client, url).await,
                }
            });
            let seen = futures::future::join_all(asked).await;
            let all_follow = seen.iter().all(|host| host.follows(&active));
            if all_follow || Instant::now() >= deadline {
                break seen;
            }
            tokio::time::sleep(AGAIN).await;
        };
        if self.json {
            let hosts: Vec<_> = seen.iter().map(|host| host.json(&active)).collect();
            println!("{:#}", json!({"active": active, "hosts": hosts}));
        } else {
            let dir = &self.registry.normalizer_dir;
            println!(
                "active    {} (revision {}{}) in {}",
                active.active,
                active.revision,
                match &active.activated_at {
                    Some(at) => format!(", since {at}"),
                    None => String::new(),
                },
                dir.display()
            );
            if let Some(shadow) = &active.shadow {
                println!(
                    "shadow    {} on {} of batches",
                    shadow.candidate, shadow.sample
                );
            }
            for host in &seen {
                println!("{}", host.text(&active));
            }
        }
        if self.wait.is_some() && !seen.iter().all(|host| host.follows(&active)) {
            bail!("not every host runs {}", active.active);
        }
        Ok(())
    }
}

impl Seen {
    fn serving(&self) -> Option<&Value> {
        self.stats.as_ref().ok().map(|stats| &stats["normalizer"])
    }

    /// Whether it runs what is active, with those settings.
    fn follows(&self, active: &Activation) -> bool {
        let Ok(stats) = &self.stats else { return false };
        let settings = active.active.settings.as_ref();
        let activation = &stats["activation"];
        let serving = &activation["serving"];
        // Hexadecimal by hand may be in capitals.
        let is = |value: &Value, digest: &str| {
            value
                .as_str()
                .is_some_and(|value| value.eq_ignore_ascii_case(digest))
        };
        is(&serving["file_digest"], &active.active.sha256)
            && settings.is_none_or(|settings| is(&serving["settings_digest"], &settings.sha256))
            && activation["revision"] == active.revision
            && activation["refused"].is_null()
            // What is in use, where that is a moment behind.
            && stats["normalizer"]["digest"] == serving["digest"]
    }

    fn text(&self, active: &Activation) -> String {
        let url = &self.url;
        let stats = match &self.stats {
            Ok(stats) => stats,
            Err(error) => return format!("{url}\n          does not answer: {error}"),
        };
        let word = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let normalizer = self.serving().unwrap_or(&Value::Null);
        let activation = &stats["activation"];
        let state = if self.follows(active) {
            "as activated".to_owned()
        } else if let Some(message) = activation["refused"]["message"].as_str() {
            format!(
                "REFUSED the active one ({}): {message}",
                word(&activation["refused"]["kind"])
            )
        } else {
            "another than the active one".to_owned()
        };
        let shadow = &activation["shadow"];
        let shadow = match (shadow["refused"].as_str(), &shadow["running"]) {
            (Some(why), _) => format!("\n          the shadow does not run: {why}"),
            (None, Value::Bool(false)) => "\n          the shadow is being loaded".to_owned(),
            _ => String::new(),
        };
        format!(
            "{url}\n          runs {}@{} (revision {}, since {}), {state}{shadow}",
            word(&normalizer["name"]),
            word(&normalizer["version"]),
            activation["revision"],
            word(&activation["since"]),
        )
    }

    fn json(&self, active: &Activation) -> Value {
        match &self.stats {
            Err(error) => json!({"host": self.url, "error": error}),
            Ok(stats) => json!({
                "host": self.url,
                "follows": self.follows(active),
                "normalizer": stats["normalizer"],
                "activation": stats["activation"],
            }),
        }
    }
}

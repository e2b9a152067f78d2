//! What a normalizer costs, against what was accepted: instructions, memory,
//! size, imports. None of them depends on the machine or its load.

use anyhow::Context;
use cdr_plugin_host::fixtures::Fixtures;
use cdr_plugin_host::{Batch, Normalizer, PluginHost, inspect};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// Records that are measured at least, so that what a call costs by itself
/// hardly counts: a worker's batch.
const RECORDS: usize = 1000;
/// By how much a figure may grow unless the file or the command says otherwise.
const TOLERANCE_PERCENT: u32 = 10;

/// `figures.json`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figures {
    /// Name and version of the normalizer that they were taken from.
    normalizer: String,
    instructions_per_record: PerCall,
    /// Of an instance, for a batch of a thousand records.
    peak_memory_bytes: u64,
    size_bytes: u64,
    imports: Vec<String>,
    /// By how much the others may grow before they have to be accepted.
    #[serde(default = "default_tolerance")]
    tolerance_percent: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PerCall {
    admit: u64,
    normalize: u64,
}

fn default_tolerance() -> u32 {
    TOLERANCE_PERCENT
}

impl Figures {
    /// Measures a normalizer on its fixtures, over and over to a full batch.
    pub async fn take(
        host: &PluginHost,
        normalizer: &Normalizer,
        wasm: Vec<u8>,
        fixtures: &Fixtures,
    ) -> anyhow::Result<Self> {
        let outline = inspect(&wasm)?;
        let rounds = RECORDS.div_ceil(fixtures.len());
        let mut batch = Batch::default();
        for _ in 0..rounds {
            for (index, fixture) in fixtures.iter().enumerate() {
                batch.push(fixtures.batch().payload(index), fixture.received_at)?;
            }
        }
        let records = batch.len() as u64;
        let costs = host.measure(wasm, fixtures.settings(), batch).await?;
        let memory = costs.admit.memory_bytes.max(costs.normalize.memory_bytes);
        let provenance = normalizer.provenance();
        Ok(Self {
            normalizer: format!("{} {}", provenance.name, provenance.version),
            instructions_per_record: PerCall {
                admit: costs.admit.instructions / records,
                normalize: costs.normalize.instructions / records,
            },
            peak_memory_bytes: memory as u64,
            size_bytes: outline.size as u64,
            imports: outline.imports,
            tolerance_percent: TOLERANCE_PERCENT,
        })
    }

    fn read(file: &Path) -> anyhow::Result<Option<Self>> {
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("can't read {}", file.display()))?,
        };
        serde_json::from_str(&text).map(Some).with_context(|| {
            format!(
                "{} does not hold accepted figures; --accept writes them anew once it is removed",
                file.display()
            )
        })
    }

    fn sizes(&self) -> [(&'static str, u64); 4] {
        [
            (
                "normalize, instructions a record",
                self.instructions_per_record.normalize,
            ),
            (
                "admit, instructions a record",
                self.instructions_per_record.admit,
            ),
            ("peak memory, bytes", self.peak_memory_bytes),
            ("size of the .wasm, bytes", self.size_bytes),
        ]
    }
}

/// The figures of a build beside the accepted ones.
#[derive(Serialize)]
pub struct Comparison {
    now: Figures,
    accepted: Option<Figures>,
    tolerance_percent: u32,
    /// What grew by more, or was not there.
    exceeded: Vec<String>,
    file: Option<PathBuf>,
    /// Whether the file holds the figures of this build since now.
    written: bool,
}

/// Compares, and writes where that is asked for.
pub fn compare(
    mut now: Figures,
    file: Option<PathBuf>,
    tolerance: Option<u32>,
    accept: bool,
) -> anyhow::Result<Comparison> {
    let accepted = match &file {
        Some(file) => Figures::read(file)?,
        None => None,
    };
    let set = accepted.as_ref().map(|accepted| accepted.tolerance_percent);
    now.tolerance_percent = tolerance.or(set).unwrap_or(TOLERANCE_PERCENT);
    let exceeded = match &accepted {
        Some(accepted) => exceeded(&now, accepted, now.tolerance_percent),
        None => Vec::new(),
    };
    let mut written = false;
    if accept
        && let Some(file) = &file
        && accepted.as_ref() != Some(&now)
    {
        let text = format!("{}\n", serde_json::to_string_pretty(&now)?);
        std::fs::write(file, text).with_context(|| format!("can't write {}", file.display()))?;
        written = true;
    }
    Ok(Comparison {
        tolerance_percent: now.tolerance_percent,
        now,
        accepted,
        exceeded: if accept { Vec::new() } else { exceeded },
        file,
        written,
    })
}

fn exceeded(now: &Figures, accepted: &Figures, tolerance: u32) -> Vec<String> {
    let mut exceeded = Vec::new();
    for ((what, now), (_, accepted)) in now.sizes().into_iter().zip(accepted.sizes()) {
        let most = u128::from(accepted) * u128::from(100 + u64::from(tolerance));
        if u128::from(now) * 100 > most {
            exceeded.push(format!(
                "{what}: {} where {} are accepted ({})",
                grouped(now),
                grouped(accepted),
                change(now, accepted)
            ));
        }
    }
    for import in &now.imports {
        if !accepted.imports.contains(import) {
            exceeded.push(format!("it imports {import}, which is new"));
        }
    }
    exceeded
}

impl Comparison {
    pub fn failure(&self) -> Option<String> {
        (!self.exceeded.is_empty()).then(|| {
            format!(
                "figures grew by more than {} % (--accept takes them over): {}",
                self.tolerance_percent,
                self.exceeded.join(", ")
            )
        })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "figures")?;
        let accepted = self.accepted.as_ref().map(Figures::sizes);
        for (index, (what, now)) in self.now.sizes().into_iter().enumerate() {
            let head = if index == 0 {
                "      "
            } else {
                "\n             "
            };
            write!(out, "{head}{what:<34}{:>12}", grouped(now))?;
            if let Some(accepted) = &accepted {
                write!(out, "  {}", change(now, accepted[index].1))?;
            }
        }
        write!(
            out,
            "\n             imports: {}",
            self.now.imports.join(", ")
        )?;
        match (&self.accepted, &self.file) {
            _ if self.written => {}
            (None, Some(file)) => write!(
                out,
                "\n             none are accepted yet: --accept writes {}",
                file.display()
            )?,
            _ => {}
        }
        if let (true, Some(file)) = (self.written, &self.file) {
            write!(
                out,
                "\n             accepted: {} is written",
                file.display()
            )?;
        }
        for exceeded in &self.exceeded {
            write!(out, "\nGREW         {exceeded}")?;
        }
        Ok(())
    }
}

fn change(now: u64, accepted: u64) -> String {
    if now == accepted {
        return "as accepted".to_owned();
    }
    if accepted == 0 {
        return "from 0".to_owned();
    }
    let percent = (now as f64 / accepted as f64 - 1.0) * 100.0;
    format!("{percent:+.1} %")
}

/// With a comma after every three digits.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(normalize: u64, size: u64, imports: &[&str]) -> Figures {
        Figures {
            normalizer: "calls 1.0.0".to_owned(),
            instructions_per_record: PerCall {
                admit: 100,
                normalize,
            },
            peak_memory_bytes: 1 << 20,
            size_bytes: size,
            imports: imports.iter().map(|import| (*import).to_owned()).collect(),
            tolerance_percent: TOLERANCE_PERCENT,
        }
    }

    #[test]
    fn growth_within_the_tolerance_is_no_matter_and_shrinking_never_is() {
        let accepted = figures(1000, 5000, &["wasi:io/streams@0.2.6"]);
        for same in [
            figures(1100, 5500, &["wasi:io/streams@0.2.6"]),
            figures(1, 1, &[]),
        ] {
            assert_eq!(exceeded(&same, &accepted, 10), Vec::<String>::new());
        }
        let grown = exceeded(
            &figures(1101, 5501, &["wasi:cli/exit@0.2.6"]),
            &accepted,
            10,
        );
        assert_eq!(grown.len(), 3, "{grown:?}");
        assert!(grown[0].contains("1,101") && grown[0].contains("+10.1 %"));
        assert!(grown[2].contains("wasi:cli/exit"));
        assert_eq!(exceeded(&figures(1101, 5000, &[]), &accepted, 11).len(), 0);
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }
}

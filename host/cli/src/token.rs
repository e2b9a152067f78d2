//! `cdr token`: tokens of vendors, for `API_TOKENS_FILE`.

use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use cdr_api::auth::{Line, Token, lines};
use clap::Subcommand;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Tokens that let vendors post.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Makes a token: shows it once, and the line of API_TOKENS_FILE that lets it post
    New(New),
    /// Checks a file of tokens and shows whose they are
    List(List),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The token goes to the vendor, who sends it as `Authorization: Bearer TOKEN`. \
                        The file holds its SHA-256 only, and is read again by running hosts within \
                        seconds. To replace a token, make a second one, and delete the first line \
                        when the vendor has moved."
)]
pub struct New {
    /// The only vendor_id that may be posted with it
    vendor: String,
    /// Adds the line to this file (made if it is not there) instead of showing it
    #[arg(long, env = "API_TOKENS_FILE", value_name = "FILE")]
    file: Option<PathBuf>,
    /// From when on it counts no more: a time as 2027-06-30T00:00:00Z, or days from now as 90d
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<SystemTime>,
    /// Records a second
    #[arg(long, value_name = "RECORDS")]
    rate: Option<NonZeroU32>,
}

#[derive(Debug, clap::Args)]
pub struct List {
    /// The file
    #[arg(env = "API_TOKENS_FILE", value_name = "FILE")]
    file: PathBuf,
}

fn expiry(text: &str) -> Result<SystemTime, String> {
    let days = text
        .strip_suffix('d')
        .and_then(|days| days.parse::<u32>().ok());
    let time = match days {
        Some(days) => {
            let later = SystemTime::now() + Duration::from_secs(u64::from(days) * 24 * 3600);
            OffsetDateTime::from(later).replace_nanosecond(0).ok()
        }
        None => OffsetDateTime::parse(text, &Rfc3339).ok(),
    };
    time.map(SystemTime::from).ok_or_else(|| {
        format!("{text:?} is neither a time as 2027-06-30T00:00:00Z nor days as 90d")
    })
}

impl TokenCommand {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            TokenCommand::New(new) => new.run(),
            TokenCommand::List(list) => list.run(),
        }
    }
}

impl New {
    fn run(self) -> anyhow::Result<()> {
        if self.vendor.trim().is_empty() {
            bail!("the vendor is empty; it is the vendor_id of the records");
        }
        let token = Token::random().context("the system gives no random numbers")?;
        let line = Line {
            vendor: self.vendor,
            digest: token.digest(),
            expires: self.expires,
            rate: self.rate,
        };
        match &self.file {
            Some(file) => {
                add(file, &line)?;
                eprintln!("{}: added {line}", file.display());
            }
            None => eprintln!("line for API_TOKENS_FILE:\n{line}"),
        }
        eprintln!("token, shown only now:");
        // Alone on standard output, for scripts.
        println!("{}", token.secret());
        Ok(())
    }
}

impl List {
    fn run(self) -> anyhow::Result<()> {
        let all = read(&self.file)?;
        let now = SystemTime::now();
        for line in &all {
            let digest: String = hex::encode(line.digest).chars().take(12).collect();
            let expires = match line.expires {
                None => "never expires".to_owned(),
                Some(at) if at <= now => "EXPIRED".to_owned(),
                Some(at) => format!("expires {}", OffsetDateTime::from(at).format(&Rfc3339)?),
            };
            let rate = line
                .rate
                .map_or("any rate".to_owned(), |rate| format!("{rate} records/s"));
            println!("{}\t{digest}…\t{expires}\t{rate}", line.vendor);
        }
        eprintln!("{} tokens, well-formed", all.len());
        Ok(())
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<Line>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("can't read {}", file.display()))?;
    lines(&text).with_context(|| file.display().to_string())
}

/// Replaces the file by one with the line behind all others, so that a host that
/// reads it at that moment sees the one or the other. Two at once: the second waits.
fn add(file: &Path, line: &Line) -> anyhow::Result<()> {
    let named = || file.display().to_string();
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let lock = std::fs::File::open(folder).with_context(|| folder.display().to_string())?;
    lock.lock().with_context(|| folder.display().to_string())?;
    let mut text = match std::fs::read_to_string(file) {
        Ok(text) => {
            lines(&text).with_context(named)?;
            text
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "# vendor, SHA-256 of the token, expires=TIME, rate=RECORDS_PER_SECOND\n".to_owned()
        }
        Err(error) => return Err(error).with_context(named),
    };
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text += &format!("{line}\n");
    let mut new = tempfile::NamedTempFile::new_in(folder).with_context(named)?;
    new.write_all(text.as_bytes()).with_context(named)?;
    // Whoever may read the file now may read it then.
    if let Ok(meta) = std::fs::metadata(file) {
        new.as_file()
            .set_permissions(meta.permissions())
            .with_context(named)?;
    }
    new.as_file().sync_all().with_context(named)?;
    new.persist(file).with_context(named)?;
    Ok(())
}

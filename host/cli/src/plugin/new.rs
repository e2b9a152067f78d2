//! `cdr plugin new`: writes the crate of a new normalizer, the SDK beside it, so
//! that it builds without this repository.

mod files;

use anyhow::{Context, bail};
use cdr_plugin_host::validate;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Stands for the name in the template's files.
const NAME: &str = "{{name}}";

/// Crates that the template uses, or that Rust brings.
const CRATES: &str = "alloc cdr-plugin-sdk cdr-plugin-sdk-derive core proc-macro serde serde-json std test uuid wit-bindgen";

/// Words of the language: no crate can be called so.
const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true try type typeof unsafe unsized use virtual where while yield";

#[derive(Debug, clap::Args)]
#[command(after_help = "Then: cd NAME && cdr plugin test .")]
pub struct NewCommand {
    /// What it is called, in rows, dead letters and metrics too: lower-case letters, digits and `-`
    name: String,
    /// Where it goes; must not be there yet [default: ./NAME]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl NewCommand {
    pub fn run(self) -> anyhow::Result<()> {
        check_name(&self.name)?;
        let dir = self.dir.unwrap_or_else(|| PathBuf::from(&self.name));
        write(&self.name, &dir)?;
        writeln!(
            std::io::stdout(),
            "{} is the crate of a new normalizer, `{}`. Its README.md says what is where. Next:\n\n    \
             cdr plugin test {}",
            dir.display(),
            self.name,
            dir.display()
        )?;
        Ok(())
    }
}

fn check_name(name: &str) -> anyhow::Result<()> {
    if let Err(sentence) = validate::name(name) {
        bail!("{sentence}; take another one, as in `cdr plugin new acme-calls`");
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        bail!("the name {name:?} does not begin with a letter, which the name of a crate has to");
    }
    let mut taken = CRATES.split(' ').chain(KEYWORDS.split(' '));
    if taken.any(|taken| taken == name) {
        bail!("the name {name:?} is taken by Rust or by a crate that the normalizer needs");
    }
    Ok(())
}

fn write(name: &str, dir: &Path) -> anyhow::Result<()> {
    if dir.exists() {
        bail!(
            "{} is there already, and nothing in it is overwritten: take another name, or another folder with --dir",
            dir.display()
        );
    }
    for file in files::TEMPLATE {
        let content = file.content.replace(NAME, name);
        put(&dir.join(file.path), &content)?;
    }
    for file in files::VENDORED {
        put(&dir.join("vendor").join(file.path), file.content)?;
    }
    Ok(())
}

fn put(path: &Path, content: &str) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("can't make the folder {}", folder.display()))?;
    }
    std::fs::write(path, content).with_context(|| format!("can't write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_for_the_manifest_and_for_cargo() {
        for good in ["calls", "acme-calls-2", "a"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for (bad, word) in [
            ("", "lower-case"),
            ("Calls", "lower-case"),
            ("acme_calls", "lower-case"),
            ("../calls", "lower-case"),
            (&"a".repeat(65), "64"),
            ("2g", "letter"),
            ("-calls", "letter"),
            ("serde", "taken"),
            ("match", "taken"),
        ] {
            let said = check_name(bad).unwrap_err().to_string();
            assert!(said.contains(word), "{bad}: {said}");
        }
    }
}

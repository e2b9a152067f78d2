//! `cdr plugin keygen`, `sign`, `verify`: minisign signatures, without minisign.

use crate::args::{TrustArgs, signature_path};
use anyhow::{Context, bail};
use minisign::{KeyPair, SecretKeyBox};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The password of a secret key; asked for at the terminal without it.
const PASSWORD: &str = "MINISIGN_PASSWORD";

#[derive(Debug, clap::Args)]
pub struct KeygenCommand {
    /// Where the keys go: PREFIX.key (secret) and PREFIX.pub
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
    /// Leave the secret key unencrypted, for machines that sign unattended
    #[arg(long)]
    no_password: bool,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "The password of the key is taken from MINISIGN_PASSWORD, or asked for.")]
pub struct SignCommand {
    /// The normalizer; its signature goes beside it, as FILE.wasm.minisig
    file: PathBuf,
    /// The secret key, as `cdr plugin keygen` or `minisign -G` make it
    #[arg(long, value_name = "FILE.key")]
    key: PathBuf,
}

#[derive(Debug, clap::Args)]
pub struct VerifyCommand {
    /// The normalizer, with FILE.wasm.minisig beside it
    file: PathBuf,
    #[command(flatten)]
    trust: TrustArgs,
}

impl KeygenCommand {
    pub fn run(self) -> anyhow::Result<()> {
        let with = |extension: &str| {
            let mut name = self.prefix.clone().into_os_string();
            name.push(extension);
            PathBuf::from(name)
        };
        let (secret, public) = (with(".key"), with(".pub"));
        for path in [&secret, &public] {
            if path.exists() {
                bail!(
                    "{} is there already; a key is never overwritten",
                    path.display()
                );
            }
        }
        let made = match self.no_password {
            true => KeyPair::generate_unencrypted_keypair(),
            false => KeyPair::generate_encrypted_keypair(std::env::var(PASSWORD).ok()),
        };
        let KeyPair { pk, sk } = made.context("can't make a key")?;
        let text = sk.to_box(None).context("can't write the key")?;
        write_new(&secret, 0o600, &text.to_string())?;
        let text = pk.to_box().context("can't write the key")?;
        write_new(&public, 0o644, &text.to_string())?;
        println!("secret key {} (keep it from the hosts)", secret.display());
        println!("public key {}", public.display());
        println!("NORMALIZER_TRUSTED_KEYS={}", pk.to_base64());
        Ok(())
    }
}

impl SignCommand {
    pub fn run(self) -> anyhow::Result<()> {
        let wasm = std::fs::read(&self.file)
            .with_context(|| format!("can't read {}", self.file.display()))?;
        // A signature says that somebody looked: at least at what kind of file it is.
        let outline = cdr_plugin_host::inspect(&wasm)
            .with_context(|| format!("{} is not signed", self.file.display()))?;
        let text = std::fs::read_to_string(&self.key)
            .with_context(|| format!("can't read the key {}", self.key.display()))?;
        let unreadable = || format!("the key {} can't be used", self.key.display());
        let key = SecretKeyBox::from_string(&text).with_context(unreadable)?;
        let key = match SecretKeyBox::from_string(&text)
            .with_context(unreadable)?
            .into_unencrypted_secret_key()
        {
            Ok(key) => key,
            Err(_) => key
                .into_secret_key(std::env::var(PASSWORD).ok())
                .with_context(unreadable)?,
        };
        let name = self.file.file_name().unwrap_or_default().to_string_lossy();
        let comment = format!("file:{name} sha256:{}", outline.sha256);
        let signature = minisign::sign(None, &key, wasm.as_slice(), Some(&comment), None)
            .context("signing failed")?;
        let path = signature_path(&self.file);
        std::fs::write(&path, signature.to_string()).with_context(|| path.display().to_string())?;
        println!("signed: {}", path.display());
        Ok(())
    }
}

impl VerifyCommand {
    pub fn run(self) -> anyhow::Result<()> {
        let keys = self.trust.keys()?;
        if !keys.is_on() {
            bail!("whose signature? give --normalizer-trusted-keys or NORMALIZER_TRUSTED_KEYS");
        }
        let wasm = std::fs::read(&self.file)
            .with_context(|| format!("can't read {}", self.file.display()))?;
        let signature = std::fs::read_to_string(signature_path(&self.file)).ok();
        let by = keys
            .check(&wasm, signature.as_deref())
            .with_context(|| self.file.display().to_string())?;
        println!(
            "{}: signed by {}",
            self.file.display(),
            by.unwrap_or_default()
        );
        Ok(())
    }
}

fn write_new(path: &Path, mode: u32, text: &str) -> anyhow::Result<()> {
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("can't write {}", path.display()))
}

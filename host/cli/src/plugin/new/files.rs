//! The files that `cdr plugin new` writes.

/// A file, from its path in the crate.
pub struct File {
    pub path: &'static str,
    pub content: &'static str,
}

macro_rules! files {
    ($($path:literal: $source:literal,)*) => {
        &[$(File { path: $path, content: include_str!($source) },)*]
    };
}

/// The crate itself; `{{name}}` stands for its name.
pub const TEMPLATE: &[File] = files! {
    "Cargo.toml": "template/Cargo.toml.in",
    "README.md": "template/README.md.in",
    ".gitignore": "template/gitignore.in",
    "src/lib.rs": "template/lib.rs.in",
    "fixtures/README.md": "template/fixtures/README.md",
    "fixtures/settings.json": "template/fixtures/settings.json",
    "fixtures/voice.in.json": "template/fixtures/voice.in.json",
    "fixtures/voice.out.json": "template/fixtures/voice.out.json",
    "fixtures/sms.in.json": "template/fixtures/sms.in.json",
    "fixtures/sms.out.json": "template/fixtures/sms.out.json",
    "fixtures/missing-caller.in.json": "template/fixtures/missing-caller.in.json",
    "fixtures/missing-caller.out.json": "template/fixtures/missing-caller.out.json",
    "fixtures/number-without-country.in.json": "template/fixtures/number-without-country.in.json",
    "fixtures/number-without-country.out.json": "template/fixtures/number-without-country.out.json",
    "fixtures/start-as-text.in.json": "template/fixtures/start-as-text.in.json",
    "fixtures/start-as-text.out.json": "template/fixtures/start-as-text.out.json",
    "fixtures/too-old.in.json": "template/fixtures/too-old.in.json",
    "fixtures/too-old.out.json": "template/fixtures/too-old.out.json",
    "fixtures/unknown-access.in.json": "template/fixtures/unknown-access.in.json",
    "fixtures/unknown-access.out.json": "template/fixtures/unknown-access.out.json",
    "fixtures/cut-off.in": "template/fixtures/cut-off.in",
    "fixtures/cut-off.out.json": "template/fixtures/cut-off.out.json",
};

/// The SDK, in folders that lie to each other as they do in this repository. Only
/// its Cargo.toml files differ: what they inherit there stands in them here.
pub const VENDORED: &[File] = files! {
    "README.md": "template/vendor/README.md",
    "LICENSE": "../../../../../LICENSE",
    "wit/1.0.0/cdr.wit": "../../../../../wit/1.0.0/cdr.wit",
    "plugins/sdk/Cargo.toml": "template/vendor/sdk.toml",
    "plugins/sdk/src/answer.rs": "../../../../../plugins/sdk/src/answer.rs",
    "plugins/sdk/src/component.rs": "../../../../../plugins/sdk/src/component.rs",
    "plugins/sdk/src/guest.rs": "../../../../../plugins/sdk/src/guest.rs",
    "plugins/sdk/src/lib.rs": "../../../../../plugins/sdk/src/lib.rs",
    "plugins/sdk/src/native.rs": "../../../../../plugins/sdk/src/native.rs",
    "plugins/sdk/src/row.rs": "../../../../../plugins/sdk/src/row.rs",
    "plugins/sdk-derive/Cargo.toml": "template/vendor/sdk-derive.toml",
    "plugins/sdk-derive/src/lib.rs": "../../../../../plugins/sdk-derive/src/lib.rs",
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use toml::{Table, Value};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn files_below(folder: &Path) -> BTreeSet<PathBuf> {
        std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .flat_map(|path| match path.is_dir() {
                true => files_below(&path),
                false => BTreeSet::from([path]),
            })
            .collect()
    }

    /// A source that is added to the SDK has to be added here.
    #[test]
    fn every_source_of_the_sdk_is_there_and_as_it_is_in_the_repository() {
        for folder in ["plugins/sdk/src", "plugins/sdk-derive/src", "wit/1.0.0"] {
            let expected: BTreeSet<PathBuf> = files_below(&root().join(folder));
            let found: BTreeSet<PathBuf> = VENDORED
                .iter()
                .filter(|file| file.path.starts_with(folder))
                .map(|file| root().join(file.path))
                .collect();
            assert_eq!(found, expected);
        }
        for file in VENDORED.iter().filter(|file| !file.path.ends_with(".toml")) {
            if let Ok(source) = std::fs::read_to_string(root().join(file.path))
                && file.path != "README.md"
            {
                assert_eq!(file.content, source, "{}", file.path);
            }
        }
    }

    fn table(text: &str) -> Table {
        text.parse().unwrap()
    }

    /// `workspace = true`, wherever it stands, replaced by what it stands for.
    fn inherited(name: &str, value: &Value, workspace: &Table) -> Value {
        if value.get("workspace").is_none() {
            return value.clone();
        }
        workspace[name].clone()
    }

    #[test]
    fn the_vendored_manifests_say_what_the_sdk_inherits() {
        let workspace = table(&std::fs::read_to_string(root().join("Cargo.toml")).unwrap());
        let package_of = workspace["workspace"]["package"].as_table().unwrap();
        let dependencies_of = workspace["workspace"]["dependencies"].as_table().unwrap();
        for folder in ["plugins/sdk", "plugins/sdk-derive"] {
            let path = root().join(folder).join("Cargo.toml");
            let source = table(&std::fs::read_to_string(path).unwrap());
            let vendored = format!("{folder}/Cargo.toml");
            let vendored = VENDORED.iter().find(|file| file.path == vendored).unwrap();
            let vendored = table(vendored.content);
            for (section, from) in [("package", package_of), ("dependencies", dependencies_of)] {
                let expected: Table = source[section]
                    .as_table()
                    .unwrap()
                    .iter()
                    .map(|(name, value)| (name.clone(), inherited(name, value, from)))
                    .map(
                        |(name, value)| match value.get("path").and_then(Value::as_str) {
                            // From the root of the repository there, from beside here.
                            Some(path) => {
                                let path = path.replace("plugins/", "../");
                                (
                                    name,
                                    Table::from_iter([("path".to_owned(), path.into())]).into(),
                                )
                            }
                            None => (name, value),
                        },
                    )
                    .collect();
                assert_eq!(
                    vendored[section].as_table().unwrap(),
                    &expected,
                    "{folder}: {section}"
                );
            }
            assert_eq!(vendored.get("lib"), source.get("lib"), "{folder}");
        }
    }

    #[test]
    fn the_template_asks_for_the_versions_that_the_sdk_is_tested_with() {
        let workspace = table(&std::fs::read_to_string(root().join("Cargo.toml")).unwrap());
        let template = TEMPLATE
            .iter()
            .find(|file| file.path == "Cargo.toml")
            .unwrap();
        let template = table(template.content);
        let version = |value: &Value| match value {
            Value::String(version) => version.clone(),
            table => table["version"].as_str().unwrap().to_owned(),
        };
        for (name, wanted) in template["dependencies"].as_table().unwrap() {
            if name != "cdr-plugin-sdk" {
                let there = &workspace["workspace"]["dependencies"][name];
                assert_eq!(version(wanted), version(there), "{name}");
            }
        }
        let package = &workspace["workspace"]["package"];
        for key in ["edition", "rust-version"] {
            assert_eq!(template["package"][key], package[key], "{key}");
        }
        assert_eq!(
            template["profile"]["release"]["lto"],
            workspace["profile"]["plugin"]["lto"]
        );
    }

    #[test]
    fn every_fixture_of_the_template_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/plugin/new/template/fixtures");
        let expected = files_below(&folder);
        let listed: BTreeSet<PathBuf> = TEMPLATE
            .iter()
            .filter_map(|file| file.path.strip_prefix("fixtures/"))
            .map(|name| folder.join(name))
            .collect();
        assert_eq!(listed, expected);
    }
}

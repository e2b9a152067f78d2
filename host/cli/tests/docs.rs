//! What the documents point at is there.

use std::path::Path;

/// `docs/delivery.md` names a test for each fault of others: file and function.
#[test]
fn every_test_that_the_documents_name_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/delivery.md")).unwrap();
    let mut found = 0;
    for line in text.lines().filter(|line| line.starts_with('|')) {
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        for pair in quoted.windows(2) {
            let [file, name] = pair else { continue };
            if !file.ends_with(".rs") || name.ends_with(".rs") {
                continue;
            }
            let source = std::fs::read_to_string(root.join(file))
                .unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(
                source.contains(&format!("fn {name}(")),
                "{file} has no {name}"
            );
            found += 1;
        }
    }
    assert!(found >= 15, "only {found} tests are named");
}

/// Links to files of the repository lead somewhere.
#[test]
fn every_link_to_a_file_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for document in [
        "README.md",
        "docs/api.md",
        "docs/delivery.md",
        "docs/freeswitch.md",
        "docs/normalizers.md",
        "docs/plugin-authors.md",
        "docs/plugin-other-languages.md",
        "docs/running.md",
        "docs/vendors.md",
        "plugins/examples/python/README.md",
    ] {
        let path = root.join(document);
        let text = std::fs::read_to_string(&path).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
            .filter(|target| !target.contains("://") && !target.starts_with('#'))
        {
            let target = target.split('#').next().unwrap();
            assert!(
                path.parent().unwrap().join(target).exists(),
                "{document}: {target}"
            );
        }
    }
}

//! The committed sample run: the README's figures and charts come from it.

use std::path::Path;

use crate::support::{Sandbox, repository};

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn the_sample_is_redrawn_as_it_is_committed_and_its_table_is_the_readmes() {
    let sandbox = Sandbox::new();
    copy(
        &repository().join("results/sample"),
        &sandbox.path().join("results/sample"),
    );
    let ended = sandbox.run(&["report", "sample"]).exits(0);
    let readme = std::fs::read_to_string(repository().join("README.md")).unwrap();
    assert!(
        readme.contains(ended.stdout.trim()),
        "the README's table should be:\n{}",
        ended.stdout
    );

    let mut n_compared = 0;
    for entry in std::fs::read_dir(sandbox.path().join("charts/sample")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_owned();
        // PNG bytes depend on the compression library's version; the SVG is the same picture.
        if path
            .extension()
            .is_some_and(|extension| extension == "svg" || extension == "csv")
        {
            let committed = std::fs::read(repository().join("charts/sample").join(&name)).unwrap();
            assert!(
                std::fs::read(&path).unwrap() == committed,
                "{} differs",
                name.display()
            );
            n_compared += 1;
        }
    }
    assert!(n_compared >= 7);
}

//! Images of a sweep: built from the Compose file, named by content in run.json.

use super::{Phases, Testbed, docker};

/// Takes the images that were built here away, however the test ends.
struct Built(String);

impl Drop for Built {
    fn drop(&mut self) {
        let filter = format!("label=team={}", self.0);
        let ids = docker(&["image", "ls", "--quiet", "--filter", &filter]);
        for id in ids.lines() {
            docker(&["image", "rm", "--force", id]);
        }
    }
}

#[test]
fn every_distinct_build_is_done_before_the_first_trial_and_recorded() {
    let testbed = Testbed::new();
    let team = format!("test-{}", std::process::id());
    let _built = Built(team.clone());
    testbed.sandbox.write(
        "image/Dockerfile",
        "FROM nightsweep/testbed:local\nARG LEVEL\nLABEL level=$LEVEL\n",
    );
    let phases = Phases {
        warm_up: 1,
        latency: None,
        stress: 2,
    };
    let build = format!(
        "\n[override.services.app.build]\ncontext = \"{}\"\nargs = {{ LEVEL = \"${{web_threads}}\" }}\nlabels = {{ team = \"{team}\" }}\n",
        testbed.sandbox.path().join("image").display()
    );
    testbed.matrix("cpus = [1]\nweb = [2, 3]", phases, &build);
    let ended = testbed.run(&["run"]).exits(0);
    let steps = ended.stderr.matches(": LABEL level=").count();
    assert_eq!(steps, 2, "{}", ended.stderr);

    let text = std::fs::read_to_string(testbed.run_folder().join("run.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut levels = Vec::new();
    for cell in manifest["cells"].as_array().unwrap() {
        let app = &cell["stack"]["services"]["app"];
        let image = app["image"].as_str().unwrap();
        assert!(image.starts_with("build of app (sha256:"), "{image}");
        let facts = &manifest["images"][image];
        assert_eq!(facts["origin"], "built");
        assert_eq!(facts["digest"], app["image_id"]);
        let label = "{{index .Config.Labels \"level\"}}";
        let id = app["image_id"].as_str().unwrap();
        levels.push(docker(&["image", "inspect", "--format", label, id]));
    }
    assert_eq!(levels, ["2", "3"]);
    assert!(
        !text.contains("nightsweep/build:"),
        "keys stay on the engine"
    );
    assert_eq!(testbed.rows().len(), 2);
    testbed.assert_nothing_left();
}

//! Names and labels of what one trial creates.
//!
//! Names are for people and must only be unique; labels are what things are found
//! and removed by. **Invariant**: nothing is ever found by its name.
//! Read `teardown.rs` next.

use sha2::{Digest, Sha256};

use super::{Labels, Owner};

/// Label that names the run.
pub const LABEL_RUN: &str = "nightsweep.run";
/// Label that names the trial within the run.
pub const LABEL_TRIAL: &str = "nightsweep.trial";
/// Label that names the cell.
pub const LABEL_CELL: &str = "nightsweep.cell";
/// Label that names the owning process.
pub const LABEL_OWNER: &str = "nightsweep.owner";
/// Label that names the Compose service.
pub const LABEL_SERVICE: &str = "nightsweep.service";
/// Label that says which container of its service this is, from 1, where there are several.
pub const LABEL_REPLICA: &str = "nightsweep.replica";
/// Label of golden volumes, which outlive runs and are never removed with them.
pub const LABEL_GOLDEN: &str = "nightsweep.golden";
/// Label of the image that works on volumes.
pub const LABEL_HELPER: &str = "nightsweep.helper";
/// Label of images that were built here, with their content key; they outlive runs.
pub const LABEL_BUILD: &str = "nightsweep.build";
/// All of them: nobody else's may count.
pub(super) const OUR_LABELS: [&str; 8] = [
    LABEL_RUN,
    LABEL_TRIAL,
    LABEL_CELL,
    LABEL_OWNER,
    LABEL_SERVICE,
    LABEL_REPLICA,
    LABEL_GOLDEN,
    LABEL_BUILD,
];

/// Which trial something belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialTag {
    /// The run's id.
    pub run_id: String,
    /// The trial within the run; attempts of one trial differ here when they may overlap.
    pub trial: String,
    /// The cell it measures.
    pub cell_id: String,
    /// The process that answers for it.
    pub owner: Owner,
}

impl TrialTag {
    /// Labels of everything the trial creates.
    pub fn labels(&self) -> Labels {
        Labels::from([
            (LABEL_RUN.to_owned(), self.run_id.clone()),
            (LABEL_TRIAL.to_owned(), self.trial.clone()),
            (LABEL_CELL.to_owned(), self.cell_id.clone()),
            (LABEL_OWNER.to_owned(), self.owner.to_string()),
        ])
    }

    /// Labels of one service's container.
    pub fn service_labels(&self, service: &str) -> Labels {
        let mut labels = self.labels();
        labels.insert(LABEL_SERVICE.to_owned(), service.to_owned());
        labels
    }

    /// Labels of one container of a service that has `of` of them; `index` from 0.
    pub(super) fn replica_labels(&self, service: &str, index: usize, of: usize) -> Labels {
        let mut labels = self.service_labels(service);
        if of > 1 {
            labels.insert(LABEL_REPLICA.to_owned(), (index + 1).to_string());
        }
        labels
    }

    /// What the engine is asked for to find everything of this trial.
    pub fn filter(&self) -> Vec<String> {
        vec![
            format!("{LABEL_RUN}={}", self.run_id),
            format!("{LABEL_TRIAL}={}", self.trial),
        ]
    }

    /// Engine-wide name of a service, network or volume of this trial.
    ///
    /// The run is a digest: ids are long, and two of them may begin alike.
    pub fn name(&self, part: &str) -> String {
        let digest = Sha256::digest(self.run_id.as_bytes());
        let run = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        format!("ns-{run:08x}-{}-{}", plain(&self.trial), plain(part))
    }
}

/// The text with everything that an engine's names may not hold replaced.
fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '.' | '-' => c,
            _ => '-',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(run_id: &str, trial: &str) -> TrialTag {
        TrialTag {
            run_id: run_id.to_owned(),
            trial: trial.to_owned(),
            cell_id: "cpus-1".to_owned(),
            owner: "h:1/2/3".parse().unwrap(),
        }
    }

    #[test]
    fn runs_that_begin_alike_and_trials_have_names_of_their_own() {
        let names = [
            tag("2026-11-30-a", "1").name("app"),
            tag("2026-11-30-b", "1").name("app"),
            tag("2026-11-30-a", "2").name("app"),
            tag("2026-11-30-a", "1").name("db"),
        ];
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name), "{names:?}");
        }
    }

    #[test]
    fn a_name_holds_only_what_the_engine_allows() {
        let name = tag("r", "1/2").name("my service:é");
        assert!(name.ends_with("-1-2-my-service--"), "{name}");
    }

    #[test]
    fn everything_carries_run_trial_cell_and_owner() {
        let labels = tag("r", "7").service_labels("app");
        let expected = [
            ("nightsweep.run", "r"),
            ("nightsweep.trial", "7"),
            ("nightsweep.cell", "cpus-1"),
            ("nightsweep.owner", "h:1/2/3"),
            ("nightsweep.service", "app"),
        ];
        let found: Vec<(&str, &str)> = labels
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(found, expected);
    }
}

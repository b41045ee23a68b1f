//! The container engine: operations, launching, proof and clean-up.
//!
//! [`Engine`] is a thin list of single operations; everything that decides is
//! written once over it. This module knows neither load nor results nor the
//! matrix; it gets a resolved stack and gives back addresses, proof and counters.
//!
//! In reading order: `api.rs` (the trait), `support.rs` (what no
//! launch can do), `images/` (pulled or built before the sweep), `trial.rs`
//! (names and labels), `replica.rs` (a service with several containers),
//! `cpu/` (whose CPUs are whose), `launch/` (from nothing to ready), `reach.rs`,
//! `proof/` (what is in force), `telemetry.rs`,
//! `host.rs` and `cgroup.rs` (counters), `watch.rs` (exits), `unhealthy.rs`, `logs.rs`,
//! `golden/` (volumes that are prepared once and cloned),
//! `teardown.rs` (the lease), `owner.rs` and `clean.rs` (leftovers), `docker/`
//! (the real engine) and `fake/` (a scripted one for tests).

mod api;
mod cgroup;
mod clean;
mod cli_config;
mod cpu;
mod docker;
mod error;
pub mod fake;
mod golden;
mod host;
mod images;
mod launch;
mod logs;
mod owner;
mod probe;
mod proof;
mod reach;
mod replica;
mod secure_probe;
mod support;
mod teardown;
mod telemetry;
mod trial;
mod unhealthy;
mod watch;

#[cfg(test)]
mod clean_tests;
#[cfg(test)]
#[cfg(feature = "docker-tests")]
mod docker_tests;
#[cfg(test)]
mod tests;

pub use api::{
    BuildRequest, ContainerId, ContainerRequest, Counters, Engine, Health, HostFacts, ImageFacts,
    ImageOrigin, Inspection, Labels, Leftover, LeftoverKind, Limits, PullRequest, RunState,
    VolumeFacts,
};
pub use cgroup::{
    Cgroup, CpuQuota, KernelCpu, KernelLimit, KernelLimits, find_cgroup, read_kernel_limits,
};
pub use clean::{CleanReport, CleanRequest, clean, remove_run};
pub use cli_config::CliConfig;
pub use cpu::{
    CpuPlan, CpuProblem, CpuRequest, Known, TierCpus, TierStacks, Topology, cpu_limit, plan_cpus,
};
pub use docker::{DockerEngine, Examination};
pub use error::{EngineError, EngineErrorKind};
pub use golden::{
    CloneSource, CloneWay, ClonedState, GOLDEN_USE_LABEL, GoldenFacts, GoldenKey, HelperArchive,
    HelperError, HelperImage, HelperImageError, HelperMount, HelperRequest, SealedGolden,
    TrialState, claim, drop_claim, ensure_helper_image, find_claims, find_golden,
    find_golden_of_source, golden_label_filter, helper_archive, register_use, run_helper,
    run_helper_of, seal,
};
pub use host::{HostCpu, HostUse, host_use, parse_host_cpu, read_host_cpu};
pub use images::{
    BuildContext, BuildSource, Credentials, ImageMissing, ImageProgress, ImagesMissing, Keyring,
    PrepareError, PreparedImages, ProgressSink, build_key_of, check_builds, prepare_images,
    without_build_keys,
};
pub use launch::{
    Launch, LaunchError, LaunchTarget, Launched, Prepared, TargetPath, launch, prepare, start,
};
pub use logs::{collect_logs, collect_trial_logs};
pub use owner::{Liveness, Owner, OwnerParseError};
pub use probe::{Page, ProbeAnswer, ProbeFailure, ReadyProbe};
pub use proof::{
    InspectedLimits, LimitsNotApplied, PlannedLimits, Proof, ProofError, ProofReading,
    ServiceReading, VariableReading, changed_variables, check_limits, compare_environment,
    compare_image, compare_inspection, compare_kernel, compare_kernel_cpu, nano_cpus, read_proof,
    sample_cpu,
};
pub use reach::{ReachError, network_mode, reach};
pub use replica::Replica;
pub use support::{Unsupported, check_stack};
pub use teardown::{Lease, TeardownReport};
pub use telemetry::{
    CounterDelta, Reading, Readings, ServiceUse, difference, differences, snapshot,
};
pub use trial::{
    LABEL_BUILD, LABEL_CELL, LABEL_GOLDEN, LABEL_HELPER, LABEL_OWNER, LABEL_REPLICA, LABEL_RUN,
    LABEL_SERVICE, LABEL_TRIAL, TrialTag,
};
pub use unhealthy::Unhealthy;
pub use watch::{Exit, watch_exits};

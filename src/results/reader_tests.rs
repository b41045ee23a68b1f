//! What the reader takes, what it refuses, and that it reads what the writer wrote.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::results::{ResultsError, TrialColumns, TrialsCsv};

const FILE: &str = "trials.csv";

fn parse(text: &str) -> Result<TrialsRead, ReadError> {
    parse_trials(Path::new(FILE), text.as_bytes())
}

fn problems(text: &str) -> String {
    match parse(text).unwrap_err() {
        ReadError::Rows(problems) => problems.to_string(),
        error @ ReadError::File { .. } => panic!("{error}"),
    }
}

fn columns() -> TrialColumns {
    TrialColumns {
        axes: vec!["cpus".into(), "gc".into()],
        variables: vec!["web_threads".into()],
        services: vec!["app".into(), "db".into()],
    }
}

fn sample_row() -> TrialRow {
    let mut row = foreign_row(0);
    row.run_id = "demo-20260309-010203-00af".into();
    row.cell_id = "cpus-0.5__gc-g1".into();
    row.axes.insert("cpus".into(), Scalar::Float(0.5));
    row.axes.insert("gc".into(), Scalar::Text("g1".into()));
    row.variables
        .insert("web_threads".into(), Scalar::Integer(4));
    row.service_cpu_cores.insert("app".into(), Some(0.25));
    row.service_cpu_cores.insert("db".into(), None);
    row.verdict = Verdict::Valid;
    row.throughput_rps = Some(1423.86);
    row
}

#[test]
fn rows_with_only_the_needed_columns_are_read() {
    let read = parse(
        "throughput_rps,verdict,axis_cpus,cell_id,note\n10.5,valid,2,a,hello\n,failed,4,b,\n",
    );
    let rows = read.unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].throughput_rps, Some(10.5));
    assert_eq!(rows[0].axes["cpus"], Scalar::Integer(2));
    assert_eq!(
        (rows[1].verdict, rows[1].throughput_rps),
        (Verdict::Failed, None)
    );
    assert_ne!(rows[0].trial, rows[1].trial);
    assert!(rows[0].counted);
}

#[test]
fn every_problem_is_reported_with_its_line() {
    let text = "cell_id,axis_cpus,verdict,throughput_rps,p99_ms\n\
                a,2,valid,ten,1\n\
                ,2,good,5,-1\n\
                b,2,valid,5\n\
                c,2,valid,5,NaN\n";
    insta::assert_snapshot!(problems(text), @r"
    trials.csv:2:1: `throughput_rps` is `ten` (allowed: a number from 0)
    trials.csv:3:1: `verdict` is `good` (allowed: valid, suspect, failed or skipped)
    trials.csv:3:1: `p99_ms` is `-1` (allowed: a number from 0)
    trials.csv:3:1: `cell_id` is empty
    trials.csv:4:1: 4 cells where the header has 5 columns
    trials.csv:5:1: `p99_ms` is `NaN` (allowed: a number from 0)
    ");
}

#[test]
fn lines_are_counted_as_an_editor_counts_them() {
    let header = "cell_id,axis_cpus,verdict,throughput_rps,note";
    for (text, lines) in [
        (
            "\r\na,2,valid,x,\r\nb,2,valid,1,\r\nc,2,valid,x,\r\n",
            [2, 4],
        ),
        ("\na,2,valid,x,\nb,2,valid,1,\nc,2,valid,x,\n", [2, 4]),
        ("\ra,2,valid,x,\rb,2,valid,1,\rc,2,valid,x,\r\n", [2, 4]),
        ("\r\n\r\na,2,valid,x,\n\n\nc,2,valid,x,\n", [3, 6]),
        ("\r\na,2,valid,x,\"1\r\n2\n3\"\r\nc,2,valid,x,\r\n", [2, 5]),
    ] {
        for start in ["", "\u{feff}", "\r\n"] {
            let shift = usize::from(start == "\r\n");
            let ReadError::Rows(problems) = parse(&format!("{start}{header}{text}")).unwrap_err()
            else {
                panic!("{text:?}");
            };
            let found: Vec<usize> = problems.0.iter().map(|p| p.location.line - shift).collect();
            assert_eq!(found, lines, "{start:?} {text:?}");
        }
    }
}

#[test]
fn only_the_p99_that_counts_due_requests_may_be_infinite() {
    let text = "cell_id,axis_cpus,verdict,throughput_rps,p99_due_ms\na,2,valid,5,inf\n";
    let row = parse(text).unwrap().rows.remove(0);
    assert_eq!(row.p99_due_ms, Some(f64::INFINITY));
    let text = "cell_id,axis_cpus,verdict,throughput_rps,p99_ms,p99_due_ms\n\
                a,2,valid,inf,1e999,-1\n";
    insta::assert_snapshot!(problems(text), @r"
    trials.csv:2:1: `throughput_rps` is `inf` (allowed: a number from 0)
    trials.csv:2:1: `p99_ms` is `1e999` (allowed: a number from 0)
    trials.csv:2:1: `p99_due_ms` is `-1` (allowed: a number from 0, or inf)
    ");
}

#[test]
fn a_header_without_the_needed_columns_says_which() {
    insta::assert_snapshot!(problems("cell,verdict,verdict\n"), @r"
    trials.csv:1:1: column `cell_id` is missing
      hint: needed are cell_id, at least one axis_<name>, verdict and throughput_rps
    trials.csv:1:1: column `throughput_rps` is missing
      hint: needed are cell_id, at least one axis_<name>, verdict and throughput_rps
    trials.csv:1:1: there is no `axis_<name>` column
      hint: each knob that was varied is a column, such as axis_cpus
    trials.csv:1:1: column `verdict` is there twice
      hint: remove or rename one of them
    ");
}

#[test]
fn a_newer_schema_is_refused_and_an_empty_file_is_too() {
    let text = "schema_version,cell_id,axis_cpus,verdict,throughput_rps\n2,a,2,valid,5\n";
    assert!(problems(text).contains("schema_version 2 is newer"));
    assert!(problems("").contains("column `cell_id` is missing"));
}

#[test]
fn a_torn_last_line_is_told_and_the_rows_before_it_stand() {
    let whole = "cell_id,axis_cpus,verdict,throughput_rps\na,2,valid,5\n";
    for torn in ["b,2,va", "b", "b,2,\"fai"] {
        let read = parse(&format!("{whole}{torn}")).unwrap();
        assert_eq!(read.rows.len(), 1, "{torn}");
        let problem = read.torn_line.unwrap();
        assert_eq!(problem.location.line, 3, "{torn}");
        // There is no such command.
        assert!(!problem.to_string().contains("resume"), "{problem}");
    }
    // Other people's last line may lack only its line break.
    let read = parse(&format!("{whole}b,2,valid,7")).unwrap();
    assert_eq!((read.rows.len(), read.torn_line), (2, None));
    // Ours always has it, and `14` may be the beginning of `1423.86`.
    let ours = "schema_version,cell_id,axis_cpus,verdict,throughput_rps\n1,b,2,valid,14";
    let read = parse(ours).unwrap();
    assert!(read.rows.is_empty() && read.torn_line.is_some());
    // In the middle of a file it is no crash but a wrong file.
    assert!(problems(&format!("{whole}b,2\nc,2,valid,5\n")).contains("trials.csv:3:1"));
}

#[test]
fn appending_goes_on_after_a_crash_without_the_torn_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut file = TrialsCsv::open(&path, columns()).unwrap();
    file.append(&[sample_row()]).unwrap();
    drop(file);
    let mut raw = fs_err::OpenOptions::new().append(true).open(&path).unwrap();
    raw.write_all(b"1,demo-2026,2,1,ce").unwrap();
    assert!(read_trials(&path).unwrap().torn_line.is_some());
    let mut file = TrialsCsv::open(&path, columns()).unwrap();
    assert_eq!(file.torn_line(), Some("1,demo-2026,2,1,ce"));
    let mut second = sample_row();
    second.trial = 2;
    file.append(&[second.clone()]).unwrap();
    let read = read_trials(&path).unwrap();
    assert_eq!(read.rows, [sample_row(), second]);
    assert_eq!(read.torn_line, None);
}

#[test]
fn a_file_torn_in_its_header_starts_afresh() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    fs_err::write(&path, "schema_version,run").unwrap();
    let mut file = TrialsCsv::open(&path, columns()).unwrap();
    file.append(&[sample_row()]).unwrap();
    assert_eq!(read_trials(&path).unwrap().rows.len(), 1);
}

#[test]
fn a_file_with_other_columns_is_not_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    TrialsCsv::open(&path, columns()).unwrap();
    let mut other = columns();
    other.axes[1] = "heap".into();
    let error = TrialsCsv::open(&path, other).unwrap_err();
    assert!(matches!(
        &error,
        ResultsError::HeaderDiffers { column: 10, found, .. } if found == "axis_gc"
    ));
}

#[test]
fn a_row_with_more_than_the_file_has_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut file = TrialsCsv::open(&path, columns()).unwrap();
    let mut row = sample_row();
    row.axes.insert("heap".into(), Scalar::Integer(1));
    let error = file.append(&[sample_row(), row]).unwrap_err();
    assert!(error.to_string().contains("axis_heap"), "{error}");
    assert_eq!(read_trials(&path).unwrap().rows, []);
}

#[test]
fn the_header_is_the_contract() {
    insta::assert_snapshot!(columns().header().join(","), @"schema_version,run_id,trial,attempt,role,counted,block,cell_id,axis_cpus,axis_gc,var_web_threads,window,answers,step,load_model,latency_from,users,planned_rate_rps,achieved_rate_rps,verdict,reason,flags,slo_met,started_at,warmup_s,steady,window_s,arrivals,journeys,due,requests,successes,refused,errors,abandoned,unsent,throughput_rps,mean_ms,p50_ms,p90_ms,p95_ms,p99_ms,p999_ms,max_ms,p99_due_ms,service_p99_ms,journey_p99_ms,send_lag_p99_ms,subject_cpu_cores,subject_cpu_limit_cores,throttled_ratio,cpu_ms_per_request,subject_memory_peak_bytes,restarts,oom_killed,svc_app_cpu_cores,svc_db_cpu_cores,generator_cpu_cores,host_busy_cores,proof,target_path,dead_time_s,replicas,replica_imbalance,state,state_fingerprint,clone_s,clone_method,detail,thresholds_crossed,generator_wait_ratio");
}

#[test]
fn texts_that_look_like_formulas_or_hold_quotes_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(FILE);
    let mut file = TrialsCsv::open(&path, columns()).unwrap();
    let mut row = sample_row();
    row.reason = Some("=1+1".into());
    row.detail = Some("said \"no\", then\nleft".into());
    row.axes
        .insert("gc".into(), Scalar::Text("-XX:+UseG1,\"x\"".into()));
    file.append(&[row.clone()]).unwrap();
    let back = read_trials(&path).unwrap().rows.remove(0);
    assert_eq!(back.reason, row.reason);
    assert_eq!(back.axes, row.axes);
    assert_eq!(back.detail.as_deref(), Some("said \"no\", then left"));
    assert_eq!(fs_err::read_to_string(&path).unwrap().lines().count(), 2);
}

/// A figure that six digits hold.
fn figure() -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        Just(None),
        (0_u32..1_000_000, -6_i32..6).prop_map(|(digits, exponent)| {
            let text = format!("{digits}e{exponent}");
            Some(text.parse().unwrap())
        }),
    ]
}

fn text() -> impl Strategy<Value = Option<String>> {
    prop::option::of("[a-z=+@\"',;-][ -~µ–]{0,12}[a-z\"]")
}

fn any_row() -> impl Strategy<Value = TrialRow> {
    let verdict = prop_oneof![
        Just(Verdict::Valid),
        Just(Verdict::Suspect),
        Just(Verdict::Failed),
        Just(Verdict::Skipped),
    ];
    let counts = (any::<u32>(), any::<u64>(), prop::option::of(any::<bool>()));
    let figures = prop::collection::vec(figure(), 8);
    (
        verdict,
        counts,
        figures,
        text(),
        text(),
        prop::collection::vec("[a-z_]{1,9}", 0..3),
    )
        .prop_map(
            |(verdict, (small, large, claim), figures, reason, detail, flags)| {
                let mut row = sample_row();
                row.verdict = verdict;
                row.trial = small;
                row.counted = claim == Some(true);
                row.slo_met = claim;
                row.due = claim.map(|_| large);
                row.users = claim.map(|_| small);
                row.throughput_rps = figures[0];
                row.p99_ms = figures[1];
                row.p99_due_ms = figures[2].or(claim.map(|_| f64::INFINITY));
                row.mean_ms = figures[3];
                row.dead_time_s = figures[4];
                row.generator_cpu_cores = figures[5];
                row.service_cpu_cores.insert("db".into(), figures[6]);
                row.planned_rate_rps = figures[7];
                row.reason = reason;
                row.detail = detail;
                row.flags = flags;
                row
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(rows in prop::collection::vec(any_row(), 1..5)) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let mut file = TrialsCsv::open(&path, columns()).unwrap();
        for row in &rows {
            file.append(std::slice::from_ref(row)).unwrap();
        }
        let read = read_trials(&path).unwrap();
        prop_assert_eq!(read.rows, rows);
        prop_assert_eq!(read.torn_line, None);
    }

    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut text = b"cell_id,axis_a,verdict,throughput_rps\n".to_vec();
        text.extend(&bytes);
        let _ = parse_trials(Path::new(FILE), &text);
        let _ = parse_trials(Path::new(FILE), &bytes);
    }
}

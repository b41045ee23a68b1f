//! From a sweep's histograms to the figures of its rows.

use std::time::Duration;

use super::bench::{Bench, phase};
use crate::load::{Arrivals, LoadModel};
use crate::results::{Cut, RunsFolder, cut_windows};

/// Rows keep six digits.
fn same(figure: f64, of_row: Option<f64>) -> bool {
    let is_near = |of_row: f64| (figure - of_row).abs() <= 1e-5 * figure.abs();
    of_row.is_some_and(|of_row| figure.is_infinite() && of_row.is_infinite() || is_near(of_row))
}

#[tokio::test]
async fn whole_windows_cut_from_their_logs_have_the_figures_of_their_rows() {
    let mut bench = Bench::new(1).await;
    let closed = phase("closed", true);
    let mut open = phase("open", true);
    // One at a time, 5 us for each, cannot carry this: a backlog, and requests that never leave.
    open.plan.model = LoadModel::Open {
        requests_per_second: 200_000.0,
        arrivals: Arrivals::Uniform,
        max_in_flight: 1,
    };
    open.plan.duration = Duration::from_millis(1_300);
    bench.plan.jobs[0].phases = vec![closed, open];
    let came = bench.run(|_, _| {}).await;
    let folder = RunsFolder::under(bench.folder.path()).find("r").unwrap();
    let asked = |from_s, to_s| Cut { from_s, to_s };
    let whole = cut_windows(&folder, &came.rows, asked(0, None)).unwrap();
    assert_eq!(whole.len(), 2);
    for cut in &whole {
        let (row, total) = (cut.row, &cut.part.as_ref().unwrap().figures.total);
        let counts = &total.counts;
        for (count, of_row) in [
            (counts.due, row.due),
            (counts.requests, row.requests),
            (counts.successes, row.successes),
            (counts.errors.total(), row.errors),
            (counts.abandoned, row.abandoned),
            (counts.unsent, row.unsent),
        ] {
            assert_eq!(Some(count), of_row, "{}: {counts:?}", row.window);
        }
        let latency = &total.latency_ms;
        for (figure, of_row) in [
            (Some(total.throughput_rps), row.throughput_rps),
            (Some(total.achieved_rate_rps), row.achieved_rate_rps),
            (latency.mean, row.mean_ms),
            (latency.p50, row.p50_ms),
            (latency.p99, row.p99_ms),
            (latency.p999, row.p999_ms),
            (latency.max, row.max_ms),
            (total.p99_due_ms, row.p99_due_ms),
        ] {
            assert!(
                same(figure.unwrap(), of_row),
                "{}: {figure:?} {of_row:?}",
                row.window
            );
        }
    }
    let open = &came.rows[1];
    assert!(open.unsent > Some(0), "{open:?}");
    assert_eq!(open.p99_due_ms, Some(f64::INFINITY));
    // What left in the two parts of the window is what left in it.
    let parts = [asked(0, Some(1)), asked(1, None)].map(|part| {
        let cuts = cut_windows(&folder, &came.rows, part).unwrap();
        let part = cuts[1].part.clone().unwrap();
        part.figures.total.throughput_rps * (part.to_s - part.from_s)
    });
    let all = open.throughput_rps.unwrap() * 1.3;
    assert!(
        (parts[0] + parts[1] - all).abs() < 1e-3 * all,
        "{parts:?} {all}"
    );
}

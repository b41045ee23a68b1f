// k6's own figures in the few words that `cargo xtask bench-load` reads.
export function figures(data) {
  const { http_reqs: requests, http_req_duration: duration, http_req_failed: failed, checks } = data.metrics;
  return {
    stdout: JSON.stringify({
      requests: requests.values.count,
      rps: requests.values.rate,
      p50_ms: duration.values.med,
      p99_ms: duration.values['p(99)'],
      // In a rate of failures, a pass is a request that failed.
      failed: failed.values.passes + (checks ? checks.values.fails : 0),
    }),
  };
}

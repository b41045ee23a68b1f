// Ramping stages with thresholds, and metrics of the script's own.
import http from 'k6/http';
import { check, sleep } from 'k6';
import { Rate, Trend } from 'k6/metrics';

const writeTime = new Trend('write_time', true);
const writeErrors = new Rate('write_errors');

export const options = {
  stages: [
    { duration: '1s', target: 4 },
    { duration: '3s', target: 4 },
    { duration: '1s', target: 0 },
  ],
  thresholds: {
    http_req_failed: ['rate<0.01'],
    http_req_duration: ['p(95)<5000', 'p(99)<0.001'],
    write_errors: ['rate<0.1'],
  },
};

export default function () {
  const body = JSON.stringify({ resourceType: 'Location', name: `ward ${__ITER % 9}`, status: 'active' });
  const res = http.post(`${__ENV.BASE_URL}/fhir/Location`, body, {
    headers: { 'Content-Type': 'application/fhir+json' },
    tags: { name: 'new ward' },
  });
  const ok = check(res, { 'status is 201': (r) => r.status === 201 });
  writeTime.add(res.timings.duration);
  writeErrors.add(!ok);
  sleep(0.02);
}

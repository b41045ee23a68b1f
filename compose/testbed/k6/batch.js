// A page with what it is made of, fetched at once.
import http from 'k6/http';
import { check, sleep } from 'k6';

const API = `${__ENV.BASE_URL}/fhir`;

export const options = {
  scenarios: {
    page: { executor: 'per-vu-iterations', vus: 3, iterations: 20, maxDuration: '20s' },
  },
};

// A photo that is not there is no error of this page.
http.setResponseCallback(http.expectedStatuses({ min: 200, max: 299 }, 404));

export default function () {
  const parts = http.batch([
    ['GET', `${API}/Patient?name=nobody`],
    ['GET', `${API}/Encounter?status=finished`],
    { method: 'GET', url: `${API}/Media/none`, params: { tags: { name: 'photo' } } },
  ]);
  for (const part of parts) {
    check(part, { 'has come': (r) => r.status === 200 || r.status === 404 });
  }
  sleep(0.05);
}

// As it runs on a developer's machine, beside `docker compose up`.
import http from 'k6/http';
import { check } from 'k6';

export const options = { vus: 2, duration: '3s' };

const API = 'http://localhost:8080/fhir';
const params = { headers: { 'Content-Type': 'application/fhir+json' } };

export default function () {
  const body = JSON.stringify({ resourceType: 'Organization', name: `clinic${__VU}` });
  const created = http.post(`${API}/Organization`, body, params);
  check(created, { created: (r) => r.status === 201 });
  const listed = http.get(`${API}/Organization?name=clinic${__VU}`);
  check(listed, { listed: (r) => r.status === 200 });
}

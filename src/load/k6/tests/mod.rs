//! Scripts run by the real k6 against a server of the tests; what it measured is
//! compared with what k6 itself wrote of the same run.

mod bad;
mod environment;
mod good;
mod run;
mod tls;

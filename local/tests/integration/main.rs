//! The runner, its program, its page and its demonstration.

mod browser;
mod demo;
mod runner;
mod runner_program;
mod support;

//! The NBD server: its bytes, its data against a model, misbehaving clients, and the tools of other projects.

mod devices;
mod faults;
mod foreign;
mod listening;
mod model;
mod negotiation;
mod support;
mod transmission;

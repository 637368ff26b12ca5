//! A victim policy written in Python.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use emmclab_device::BlockId;
use emmclab_device::gc::{FullBlockOrder, VictimChoice, VictimPolicy, VictimView};
use emmclab_trace::{Error, ErrorClass};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::to_python;

/// Properties of a full block.
#[derive(Clone, Copy)]
struct FullBlock {
    valid: u32,
    erases: u32,
    age: u64,
}

/// What a victim policy can read for one decision: the full blocks of one block group in one plane. It is a copy, which does not change
/// later.
#[pyclass(name = "VictimView", module = "emmclab._core", frozen)]
pub(crate) struct PyVictimView {
    /// Numbers of the full blocks, the one that has been full for the longest time first.
    order: Vec<u32>,
    blocks: HashMap<u32, FullBlock>,
    units_per_block: u32,
    most_erases: u32,
    decision: u64,
}

impl PyVictimView {
    fn new(view: &VictimView) -> Self {
        let full = |block| (view.valid(block), view.erases(block), view.age(block));
        let blocks: Vec<_> = view.by_age().map(|block| (block.0, full(block))).collect();
        Self {
            order: blocks.iter().map(|(block, _)| *block).collect(),
            blocks: blocks.into_iter().map(|(block, (valid, erases, age))| (block, FullBlock { valid, erases, age })).collect(),
            units_per_block: view.units_per_block(),
            most_erases: view.most_erases(),
            decision: view.decision(),
        }
    }

    fn block(&self, block: u32) -> PyResult<FullBlock> {
        self.blocks
            .get(&block)
            .copied()
            .ok_or_else(|| PyValueError::new_err(format!("block {block} is not a full block of this view")))
    }
}

#[pymethods]
impl PyVictimView {
    /// Numbers of the full blocks, the one that has been full for the longest time first.
    #[getter]
    fn full_blocks(&self) -> Vec<u32> {
        self.order.clone()
    }

    /// Number of valid map units in a block.
    fn valid(&self, block: u32) -> PyResult<u32> {
        self.block(block).map(|full| full.valid)
    }

    /// Number of erases of a block.
    fn erases(&self, block: u32) -> PyResult<u32> {
        self.block(block).map(|full| full.erases)
    }

    /// Number of page programs of the whole device since the block became full.
    fn age(&self, block: u32) -> PyResult<u64> {
        self.block(block).map(|full| full.age)
    }

    /// Number of map units in a block.
    #[getter]
    fn units_per_block(&self) -> u32 {
        self.units_per_block
    }

    /// Erase count of the most worn block in this block group of the plane.
    #[getter]
    fn most_erases(&self) -> u32 {
        self.most_erases
    }

    /// Number of this decision, counted from 0 since the device was new.
    #[getter]
    fn decision(&self) -> u64 {
        self.decision
    }

    fn __repr__(&self) -> String {
        format!("<VictimView of {} full blocks, decision {}>", self.order.len(), self.decision)
    }
}

/// The exception that a victim policy raised. The simulation raises it again.
#[derive(Clone, Default)]
pub(crate) struct PolicyException(Arc<Mutex<Option<PyErr>>>);

impl PolicyException {
    /// Removes and returns the exception, if there is one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Calls a Python function to choose each victim block. After an exception it chooses none, until the simulation raises the exception.
pub(crate) struct PyPolicy {
    choose: Py<PyAny>,
    fault: PolicyException,
}

impl PyPolicy {
    pub fn new(choose: Py<PyAny>) -> (Self, PolicyException) {
        let fault = PolicyException::default();
        (Self { choose, fault: fault.clone() }, fault)
    }

    fn call_policy(&self, py: Python<'_>, view: &VictimView) -> PyResult<VictimChoice> {
        let shown = Bound::new(py, PyVictimView::new(view))?;
        let answer = self.choose.bind(py).call1((&shown,))?;
        if answer.is_none() {
            return Ok(VictimChoice::Nothing);
        }
        match answer.extract::<u32>() {
            Ok(block) if shown.get().blocks.contains_key(&block) => Ok(VictimChoice::Collect(BlockId(block))),
            _ => {
                let problem = format!(
                    "the victim policy returned {}, which is not a full block of its view",
                    answer.repr()?.to_string_lossy()
                );
                let error = Error::new(ErrorClass::Config, problem)
                    .hint("the policy must return a block number from view.full_blocks, or None to collect no block");
                Err(to_python(py, &error))
            }
        }
    }
}

impl VictimPolicy for PyPolicy {
    fn order(&self) -> FullBlockOrder {
        FullBlockOrder::Age
    }

    fn choose(&self, view: &VictimView) -> VictimChoice {
        if self.fault.is_set() {
            return VictimChoice::Nothing;
        }
        Python::attach(|py| self.call_policy(py, view)).unwrap_or_else(|error| {
            self.fault.set(error);
            VictimChoice::Nothing
        })
    }
}

//! Derives a device preset from measured service times: timing, parallelism and power, with error bars and a held-out error.
//!
//! [`samples_of_traces`] and [`samples_of_fio`] collect service times; [`calibrate`] fits a preset to them.

mod base;
mod durability;
mod fio;
mod fit;
mod model;
mod power;
mod preset;
mod queue;
mod samples;

pub use fio::samples_of_fio;
pub use fit::{
    CalibrateOptions, Calibration, CalibrationSizeRow, CalibrationStageRow, CalibrationStallRow, DurabilityRow, ENOUGH, FEW,
    FittedParameter, calibrate,
};
pub use model::{DeviceShape, DeviceTiming};
pub use power::StageFit;
pub use samples::{ServiceSamples, samples_of_traces};

//! A child that dies with its parent, however that dies.

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::EmbeddedError;

/// The variable by which [`ChildProcess`](crate::ChildProcess) tells a child the pid of its parent.
pub const PARENT_PID_VARIABLE: &str = "CDR_PARENT_PID";

/// Asks the system to kill this process when its parent dies.
///
/// Does nothing when the process was not started by a
/// [`ChildProcess`](crate::ChildProcess). Call it first thing in the child.
/// The signal is `SIGKILL`: all that runs here survives that by design, and a
/// hung child must not outlive `kill -9` of `cdr up`.
///
/// # Errors
/// [`EmbeddedError::ParentGone`] when the parent died before the system was asked.
pub fn follow() -> Result<(), EmbeddedError> {
    let Some(parent) = std::env::var(PARENT_PID_VARIABLE)
        .ok()
        .and_then(|pid| pid.parse().ok())
    else {
        return Ok(());
    };
    set_pdeathsig(Signal::SIGKILL).map_err(|errno| EmbeddedError::Untracked {
        name: "the parent process".to_owned(),
        source: errno.into(),
    })?;
    // Only now: a parent that died before the request would never be noticed.
    if u32::try_from(getppid().as_raw()).ok() != Some(parent) {
        return Err(EmbeddedError::ParentGone { parent });
    }
    Ok(())
}

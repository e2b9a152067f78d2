//! The thread that starts children.
//!
//! "Die with your parent" means the parent's *thread* to Linux: a child that
//! was started from a thread of a runtime would be killed when that thread
//! ends. So one thread, which ends with the process, starts them all.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

struct Order {
    command: Command,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

static SPAWNER: OnceLock<Sender<Order>> = OnceLock::new();

/// Starts `command` from the lasting thread, on the caller's runtime.
pub(crate) async fn spawn(command: Command) -> io::Result<Child> {
    let (reply, answer) = oneshot::channel();
    let order = Order {
        command,
        runtime: Handle::current(),
        reply,
    };
    let gone = || io::Error::other("the thread that starts children is gone");
    orders()?.send(order).map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}

fn orders() -> io::Result<&'static Sender<Order>> {
    if let Some(sender) = SPAWNER.get() {
        return Ok(sender);
    }
    let (sender, receiver) = channel::<Order>();
    std::thread::Builder::new()
        .name("spawner".to_owned())
        .spawn(move || {
            for mut order in receiver {
                let _runtime = order.runtime.enter();
                let _ = order.reply.send(order.command.spawn());
            }
        })?;
    // Of two at once, the second's channel closes and its thread ends.
    Ok(SPAWNER.get_or_init(|| sender))
}

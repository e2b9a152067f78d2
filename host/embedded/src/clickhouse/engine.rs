//! `libchdb.so` and the terminal it is given.
//!
//! The engine is ClickHouse's local program: it runs statements, the first of
//! which opens the HTTP port, and then waits for more on its terminal. That
//! wait is what keeps the server up. The terminal is a pty whose other side
//! is read by one thread. Ctrl-D on it ends the engine in order, and so, with
//! complaints in its log, does closing it. (With a pipe in place of a pty the
//! engine was seen to abort when clients broke off.)

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::EmbeddedError;

/// `chdb_query_cmdline`: ClickHouse local's own `main`.
type Main = unsafe extern "C" fn(argc: c_int, argv: *mut *mut c_char) -> *mut c_void;

/// How much of the engine's terminal output is kept for an error message, bytes.
const TAIL: usize = 1500;
const END_OF_INPUT: u8 = 4;

/// The library, loaded.
pub(super) struct Engine {
    library: libloading::Library,
}

impl Engine {
    pub(super) fn load(path: &Path) -> Result<Self, EmbeddedError> {
        let unloadable = |detail: String| EmbeddedError::LibraryUnloadable {
            path: path.to_owned(),
            detail,
        };
        if !path.is_file() {
            return Err(EmbeddedError::LibraryNotFound {
                path: path.to_owned(),
            });
        }
        // SAFETY: loading runs the library's initialisers. It is the file that
        // the operator named, or the one whose digest was checked when it was installed.
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|error| unloadable(error.to_string()))?;
        let engine = Self { library };
        engine
            .main()
            .map_err(|error| unloadable(error.to_string()))?;
        Ok(engine)
    }

    fn main(&self) -> Result<libloading::Symbol<'_, Main>, libloading::Error> {
        // SAFETY: this is the signature that the library's header gives for the
        // name (the result, whatever it points to, is not looked at).
        unsafe { self.library.get::<Main>("chdb_query_cmdline") }
    }

    /// Runs the engine until its terminal is closed. Blocks.
    pub(super) fn run(&self, args: &[String]) -> Result<(), libloading::Error> {
        let main = self.main()?;
        let owned: Vec<CString> = args
            .iter()
            .filter_map(|argument| CString::new(argument.as_str()).ok())
            .collect();
        let mut argv: Vec<*mut c_char> = owned
            .iter()
            .map(|argument| argument.as_ptr().cast_mut())
            .collect();
        let argc = c_int::try_from(argv.len()).unwrap_or_default();
        argv.push(std::ptr::null_mut());
        // SAFETY: argv holds argc strings and a null, all of which outlive the call.
        unsafe { main(argc, argv.as_mut_ptr()) };
        Ok(())
    }
}

/// The side of the pty that the engine does not see. Dropping it closes the pty.
pub(super) struct Terminal {
    keyboard: File,
    /// Its end tells the reading thread to close its side too.
    _open: io::PipeWriter,
}

/// The last that the engine wrote to its terminal.
#[derive(Clone, Default)]
pub(super) struct Tail(Arc<Mutex<Vec<u8>>>);

impl Terminal {
    /// Makes a pty the standard input and output of this process.
    pub(super) fn open() -> io::Result<(Self, Tail)> {
        let pty = nix::pty::openpty(None, None)?;
        fcntl(&pty.master, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        nix::unistd::dup2_stdin(&pty.slave)?;
        nix::unistd::dup2_stdout(&pty.slave)?;
        drop(pty.slave);
        let (closed, open) = io::pipe()?;
        let tail = Tail::default();
        let kept = tail.clone();
        let mut master = File::from(pty.master);
        let keyboard = master.try_clone()?;
        thread::Builder::new()
            .name("terminal".to_owned())
            .spawn(move || {
                let mut buffer = [0; 4096];
                while is_readable_before_close(&master, &closed) {
                    match master.read(&mut buffer) {
                        Ok(0) | Err(_) => break,
                        Ok(read) => kept.push(buffer.get(..read).unwrap_or_default()),
                    }
                }
            })?;
        let terminal = Self {
            keyboard,
            _open: open,
        };
        Ok((terminal, tail))
    }

    /// Types the end of input (Ctrl-D), at which an engine that waits for a statement ends.
    pub(super) fn type_end(&mut self) {
        let _ = self.keyboard.write_all(&[END_OF_INPUT]);
    }
}

/// Waits for output of the engine, or for the order to close its terminal.
fn is_readable_before_close(master: &File, closed: &io::PipeReader) -> bool {
    loop {
        let mut polled = [
            PollFd::new(master.as_fd(), PollFlags::POLLIN),
            PollFd::new(closed.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut polled, PollTimeout::NONE) {
            Ok(_) => {
                let [output, order] = polled;
                return !order.any().unwrap_or(true) && output.any().unwrap_or(false);
            }
            Err(nix::errno::Errno::EINTR) => {}
            Err(_) => return false,
        }
    }
}

impl Tail {
    fn push(&self, bytes: &[u8]) {
        let Ok(mut kept) = self.0.lock() else { return };
        kept.extend_from_slice(bytes);
        let excess = kept.len().saturating_sub(TAIL);
        kept.drain(..excess);
    }

    /// As text, without the terminal's control sequences.
    pub(super) fn text(&self) -> String {
        let Ok(kept) = self.0.lock() else {
            return String::new();
        };
        let text = String::from_utf8_lossy(&kept);
        let words: Vec<&str> = text
            .split(|letter: char| letter.is_control() || letter.is_whitespace())
            .filter(|word| !word.is_empty() && !word.starts_with('['))
            .collect();
        words.join(" ")
    }
}

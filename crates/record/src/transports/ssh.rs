//! Any Linux board over ssh.

use emmclab_trace::Result;

use super::remote::{Remote, command_line};

/// Runs the helper by the ssh client of this host, with the user's own configuration, keys and agent.
pub(crate) fn open(destination: &str, options: &[String]) -> Result<Remote> {
    let mut command: Vec<String> =
        ["ssh", "-T", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
            .map(str::to_owned)
            .to_vec();
    command.extend_from_slice(options);
    // `--` keeps a destination from being taken as an option.
    command.extend(["--".to_owned(), destination.to_owned(), command_line()]);
    Remote::spawn(&command)
}

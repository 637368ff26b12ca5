//! Records any Linux machine over ssh.

use emmclab_trace::Result;

use super::remote::{RemoteTransport, command_line};

/// Runs the helper through this host's ssh client, with the user's own configuration, keys and agent.
pub(crate) fn open(destination: &str, options: &[String]) -> Result<RemoteTransport> {
    let mut command: Vec<String> =
        ["ssh", "-T", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"].map(str::to_owned).to_vec();
    command.extend_from_slice(options);
    // `--` prevents that the destination is parsed as an option.
    command.extend(["--".to_owned(), destination.to_owned(), command_line()]);
    RemoteTransport::spawn(&command)
}

//! The machine to record, and the way to it.

/// The machine to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// This host.
    #[default]
    Local,
    /// A machine over ssh.
    Ssh {
        /// `USER@HOST`, or a host of the ssh configuration.
        destination: String,
        /// More options for the ssh client (`-p`, `2222`, ...).
        options: Vec<String>,
    },
    /// An Android phone over adb.
    Adb {
        /// Its serial number; the only phone where `None`.
        serial: Option<String>,
        /// Port of the adb server of this host; `$ANDROID_ADB_SERVER_PORT` or 5037 where `None`.
        port: Option<u16>,
    },
    /// Any other way: a command whose standard input and output are those of the helper run with [`crate::helper_command`].
    Command(Vec<String>),
}

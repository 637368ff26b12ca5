//! The machine to record, and how to reach it.

/// The machine to record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordTarget {
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
        /// The phone's serial number; `None` if only one phone is connected.
        serial: Option<String>,
        /// Port of the adb server of this host; `None` for `$ANDROID_ADB_SERVER_PORT` or 5037.
        port: Option<u16>,
    },
    /// Another connection: a command whose standard input and output are those of the helper, which is run with [`crate::helper_command`].
    Command(Vec<String>),
}

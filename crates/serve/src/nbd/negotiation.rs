//! The handshake (fixed newstyle): parses options and creates their replies. It does not access the socket.

use emmclab_base::SECTOR_BYTES;

use super::NbdExport;
use super::connection::CAPACITY;
use super::pending::NbdOutputQueue;
use super::request_parser::NbdSession;
use super::wire::{MAX_PAYLOAD, MAX_STRING, NBD_MAGIC, NbdFieldReader, OPTION_MAGIC, handshake, info, option, option_reply};

/// The name of the only metadata context.
const CONTEXT: &str = "base:allocation";
pub(super) const CONTEXT_ID: u32 = 1;
/// Maximum length of an option that is parsed, in bytes; with its header it fits into the buffer.
const MAX_OPTION: usize = CAPACITY / 4;
/// Maximum length of an option that is skipped, in bytes; a longer option ends the connection.
const MAX_SKIPPED: usize = 1 << 20;

/// The result of a negotiation step. Numbers are bytes of input that were consumed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NegotiationStep {
    /// More bytes are needed.
    Hungry,
    /// An option was answered.
    Next(usize),
    /// The transmission phase begins.
    Transmit(usize, NbdSession),
    /// The connection ends after the replies are sent.
    Ended,
}

/// The server's side of the handshake.
#[derive(Default)]
pub(super) struct NbdNegotiation {
    /// The client's flags; `None` until they are received.
    client: Option<u16>,
    structured: bool,
    /// The export name for which `base:allocation` is selected.
    selected: Option<Vec<u8>>,
    /// Type of an option that is too long, and number of its bytes that must still be skipped.
    skipped: Option<(u32, usize)>,
}

/// A rejected option: type of the reply, and message for users.
type OptionRefusal = (u32, &'static str);

const MALFORMED: OptionRefusal = (option_reply::ERR_INVALID, "the data of the option is malformed");
const NO_EXPORT: OptionRefusal = (option_reply::ERR_UNKNOWN, "there is no export of this name");

/// Sends the greeting, which comes before all other data.
pub(super) fn send_greeting(output: &mut NbdOutputQueue) {
    output.push(&NBD_MAGIC.to_be_bytes());
    output.push(&OPTION_MAGIC.to_be_bytes());
    output.push(&(handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES).to_be_bytes());
}

impl NbdNegotiation {
    /// Processes the flags of the client or one option. With `refuse`, options are answered with `ERR_SHUTDOWN`.
    pub fn step(&mut self, input: &[u8], export: &NbdExport, refuse: bool, output: &mut NbdOutputQueue) -> NegotiationStep {
        let mut fields = NbdFieldReader(input);
        let Some(client) = self.client else {
            let Some(flags) = fields.u32() else { return NegotiationStep::Hungry };
            let known = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
            self.client = u16::try_from(flags).ok().filter(|flags| flags & !known == 0);
            return if self.client.is_some() { NegotiationStep::Next(4) } else { NegotiationStep::Ended };
        };
        if let Some((kind, left)) = &mut self.skipped {
            let count = (*left).min(input.len());
            *left -= count;
            if *left > 0 {
                return if count == 0 { NegotiationStep::Hungry } else { NegotiationStep::Next(count) };
            }
            output.option_reply(*kind, option_reply::ERR_TOO_BIG, b"the option is longer than 64 KiB");
            self.skipped = None;
            return NegotiationStep::Next(count);
        }
        let (Some(magic), Some(kind), Some(length)) = (fields.u64(), fields.u32(), fields.u32()) else {
            return NegotiationStep::Hungry;
        };
        let length = length as usize;
        let endless = length > MAX_SKIPPED || (kind == option::EXPORT_NAME && length > MAX_STRING);
        if magic != OPTION_MAGIC || endless {
            return NegotiationStep::Ended;
        }
        if length > MAX_OPTION {
            self.skipped = Some((kind, length));
            return NegotiationStep::Next(16);
        }
        let Some(data) = fields.bytes(length) else { return NegotiationStep::Hungry };
        let used = 16 + length;
        match kind {
            option::ABORT => {
                output.option_reply(kind, option_reply::ACK, &[]);
                NegotiationStep::Ended
            }
            option::EXPORT_NAME => match export.named(data).filter(|_| !refuse) {
                Some(_) => {
                    output.push(&export.size.to_be_bytes());
                    output.push(&export.flags(self.structured).to_be_bytes());
                    if client & handshake::NO_ZEROES == 0 {
                        output.push(&[0; 124]);
                    }
                    NegotiationStep::Transmit(used, self.session(data))
                }
                None => NegotiationStep::Ended,
            },
            _ if refuse => {
                output.option_reply(kind, option_reply::ERR_SHUTDOWN, b"the server is shutting down");
                NegotiationStep::Next(used)
            }
            _ => match self.answer(kind, data, export, output) {
                Ok(chosen) => {
                    output.option_reply(kind, option_reply::ACK, &[]);
                    chosen.map_or(NegotiationStep::Next(used), |session| NegotiationStep::Transmit(used, session))
                }
                Err((error, message)) => {
                    output.option_reply(kind, error, message.as_bytes());
                    NegotiationStep::Next(used)
                }
            },
        }
    }

    /// The negotiated properties of a session on the export `name`.
    fn session(&self, name: &[u8]) -> NbdSession {
        let status = self.structured && self.selected.as_deref() == Some(name);
        NbdSession { structured: self.structured, status }
    }

    /// Answers an option, without the final reply. Returns a session if the transmission phase begins.
    fn answer(
        &mut self, kind: u32, data: &[u8], export: &NbdExport, output: &mut NbdOutputQueue,
    ) -> Result<Option<NbdSession>, OptionRefusal> {
        match kind {
            option::LIST | option::STARTTLS | option::STRUCTURED_REPLY if !data.is_empty() => {
                return Err((option_reply::ERR_INVALID, "the option accepts no data"));
            }
            option::LIST => list(export, output),
            option::STARTTLS => {
                let message = "there is no TLS: the server listens on a unix socket or loopback only";
                return Err((option_reply::ERR_POLICY, message));
            }
            option::STRUCTURED_REPLY => self.structured = true,
            option::INFO | option::GO => {
                let name = self.describe(kind, data, export, output)?;
                return Ok((kind == option::GO).then(|| self.session(name)));
            }
            option::LIST_META_CONTEXT => {
                let (_, matches) = self.contexts(data, export, true)?;
                if matches {
                    context_reply(kind, 0, output);
                }
            }
            option::SET_META_CONTEXT => {
                // A failed SET_META_CONTEXT also cancels the previous selection.
                self.selected = None;
                let (name, matches) = self.contexts(data, export, false)?;
                if matches {
                    self.selected = Some(name.to_vec());
                    context_reply(kind, CONTEXT_ID, output);
                }
            }
            _ => return Err((option_reply::ERR_UNSUP, "the option is unknown to this server")),
        }
        Ok(None)
    }

    /// Sends the information for `INFO` and `GO`; returns the requested export name.
    fn describe<'a>(
        &self, kind: u32, data: &'a [u8], export: &NbdExport, output: &mut NbdOutputQueue,
    ) -> Result<&'a [u8], OptionRefusal> {
        let mut fields = NbdFieldReader(data);
        let name = fields.string().ok_or(MALFORMED)?;
        let count = usize::from(fields.u16().ok_or(MALFORMED)?);
        if fields.0.len() != 2 * count {
            return Err(MALFORMED);
        }
        let canonical = export.named(name).ok_or(NO_EXPORT)?;
        let wanted = |item| fields.0.as_chunks().0.iter().any(|item_bytes| u16::from_be_bytes(*item_bytes) == item);
        let mut inform = |item: u16, payload: &[&[u8]]| {
            let data = [&[&item.to_be_bytes()[..]], payload].concat().concat();
            output.option_reply(kind, option_reply::INFO, &data);
        };
        let flags = export.flags(self.structured).to_be_bytes();
        inform(info::EXPORT, &[&export.size.to_be_bytes(), &flags]);
        if wanted(info::NAME) {
            inform(info::NAME, &[canonical.as_bytes()]);
        }
        if wanted(info::DESCRIPTION) {
            inform(info::DESCRIPTION, &[export.options.description.as_bytes()]);
        }
        // The block size is sent even to clients that do not ask for it, because requests that are not aligned to 512 bytes are rejected.
        let preferred = u64::from(export.limits.preferred_sectors.max(1)) * SECTOR_BYTES;
        let preferred = preferred.next_power_of_two().min(u64::from(MAX_PAYLOAD)) as u32;
        let sizes = [512, preferred, MAX_PAYLOAD].map(u32::to_be_bytes);
        inform(info::BLOCK_SIZE, &[sizes.as_flattened()]);
        Ok(name)
    }

    /// Parses a request for metadata contexts. Returns the name of the export, and whether one of the queries matches `base:allocation`.
    fn contexts<'a>(&self, data: &'a [u8], export: &NbdExport, listing: bool) -> Result<(&'a [u8], bool), OptionRefusal> {
        if !self.structured {
            return Err((option_reply::ERR_INVALID, "structured replies have to be negotiated first"));
        }
        let mut fields = NbdFieldReader(data);
        let name = fields.string().ok_or(MALFORMED)?;
        let count = fields.u32().ok_or(MALFORMED)?;
        // A list request without queries returns all metadata contexts. A set request without queries selects no context.
        let mut matches = listing && count == 0;
        for _ in 0..count {
            let query = fields.string().ok_or(MALFORMED)?;
            if query.len() > MAX_STRING || !query.contains(&b':') {
                return Err((option_reply::ERR_INVALID, "a query is a namespace, a colon and a name"));
            }
            matches |= query == CONTEXT.as_bytes() || listing && query == b"base:";
        }
        if !fields.0.is_empty() {
            return Err(MALFORMED);
        }
        export.named(name).ok_or(NO_EXPORT)?;
        Ok((name, matches))
    }
}

fn list(export: &NbdExport, output: &mut NbdOutputQueue) {
    for name in export.names() {
        let length = (name.len() as u32).to_be_bytes();
        let data = [&length, name.as_bytes(), export.options.description.as_bytes()].concat();
        output.option_reply(option::LIST, option_reply::SERVER, &data);
    }
}

fn context_reply(kind: u32, id: u32, output: &mut NbdOutputQueue) {
    let data = [&id.to_be_bytes(), CONTEXT.as_bytes()].concat();
    output.option_reply(kind, option_reply::META_CONTEXT, &data);
}

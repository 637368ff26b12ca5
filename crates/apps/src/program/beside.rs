//! Programs at once: they share cores, page cache, memory, file systems and device, and nothing of their own.

use emmclab_base::Result;

use super::{Access, Picked, Program, Step};

impl Program {
    /// This program with others beside it, which begin with it. What is theirs has their name before its own, as `email: mail.db`. The
    /// user waits for this program alone: with its end all end.
    ///
    /// # Errors
    /// As [`Program::from_toml`], where all of them together are more than a program may be, or two have one name.
    pub fn beside(mut self, others: &[Self]) -> Result<Self> {
        let mut names = vec![self.name.clone()];
        for other in others {
            let Self { name, files, databases, procedures, threads, .. } = other.clone();
            // A second one of the same name is told from the first.
            let count = names.iter().filter(|known| **known == name).count();
            let prefix = if count == 0 { name.clone() } else { format!("{name} {}", count + 1) };
            names.push(name);
            let own = |name: &mut String| *name = format!("{prefix}: {name}");
            self.files.extend(files.into_iter().map(|mut set| {
                own(&mut set.name);
                set
            }));
            self.databases.extend(databases.into_iter().map(|mut database| {
                own(&mut database.name);
                database
            }));
            self.procedures.extend(procedures.into_iter().map(|mut procedure| {
                own(&mut procedure.name);
                for step in &mut procedure.steps {
                    step.rename(&own);
                }
                procedure
            }));
            self.threads.extend(threads.into_iter().map(|mut thread| {
                own(&mut thread.name);
                for step in &mut thread.steps {
                    step.rename(&own);
                }
                thread
            }));
        }
        self.name = names.join(" + ");
        self.check("")?;
        Ok(self)
    }
}

impl Step {
    /// Changes every name of a file, database, procedure, thread, signal and lock.
    fn rename(&mut self, own: &impl Fn(&mut String)) {
        match self {
            Self::Cpu { .. } | Self::Think { .. } | Self::Network { .. } | Self::Sync {} => {}
            Self::Create { file }
            | Self::Truncate { file, .. }
            | Self::Read(Access { file, .. })
            | Self::Write(Access { file, .. })
            | Self::Overwrite(Access { file, .. })
            | Self::Append(Access { file, .. })
            | Self::Fsync(Picked { file, .. })
            | Self::Fdatasync(Picked { file, .. })
            | Self::Delete(Picked { file, .. }) => own(file),
            Self::Rename { file, to } => {
                own(file);
                own(to);
            }
            Self::Transaction { database, .. } | Self::Query { database, .. } => own(database),
            Self::Signal { name } | Self::Wait { name } => own(name),
            Self::Lock { name, steps } => {
                own(name);
                for step in steps {
                    step.rename(own);
                }
            }
            Self::Start { thread } | Self::Join { thread } => own(thread),
            Self::Repeat { steps, .. } | Self::Maybe { steps, .. } => {
                for step in steps {
                    step.rename(own);
                }
            }
            Self::Call { procedure } => own(procedure),
        }
    }
}

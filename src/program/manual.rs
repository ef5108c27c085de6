//! The manual page and the completions of shells, both made from the declarations of the arguments.

use clap::{Command, CommandFactory, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::{self, Write};

/// The shells for which [`completions`] writes a script.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum CompletedShell {
    Bash,
    Fish,
    Zsh,
}

/// The sections of the manual page that do not come from the arguments.
const SECTIONS: &str = r".SH FILES
.TP
.I /etc/homing/homing.toml
The configuration, where neither \-\-config nor HOMING_CONFIG names another and no config/homing.toml is in the
working directory. It explains each key.
.TP
.I /var/lib/homing
The store of the packaged service: sessions, queues, messages in flight, retained messages.
.TP
.I /run/homing/homing.sock
The Unix socket of the packaged service, which \fBhoming ctl\fR asks.
.SH ENVIRONMENT
.TP
.B HOMING_CONFIG
The configuration file.
.TP
.B HOMING_TOKEN_FILE
The file with the token that \fBhoming ctl \-\-url\fR and \fBhoming trace \-\-url\fR send.
.TP
.BR HOMING_ SECTION __ KEY
One key of the configuration, for example HOMING_LOG__LEVEL. It wins over the file.
.SH SIGNALS
.TP
.BR SIGTERM ,\  SIGINT
Stop in order. A second signal ends the process at once.
.TP
.B SIGHUP
Read the configuration, certificates, password and ACL files again. A refused file changes nothing.
.TP
.B SIGUSR1
Log the state of all clients with unacknowledged messages.
.SH SEE ALSO
.BR mosquitto_pub (1),
.BR mosquitto_sub (1),
.BR systemctl (1)
";

/// Writes the script that completes the arguments of `homing` in a shell.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn completions<A: CommandFactory>(
    shell: CompletedShell,
    output: &mut dyn Write,
) -> io::Result<()> {
    let generator = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Fish => Shell::Fish,
        CompletedShell::Zsh => Shell::Zsh,
    };
    // clap_complete panics where the output fails, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(generator, &mut A::command(), "homing", &mut script);
    output.write_all(&script)
}

/// Writes the manual page homing(1) as troff, with a section for each command.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn manual_page<A: CommandFactory>(output: &mut dyn Write) -> io::Result<()> {
    // Each page says global arguments once, in the section of the program.
    let mut program = A::command().disable_help_subcommand(true);
    program.build();
    let page = Man::new(program.clone()).manual("User Commands");
    page.render_title(output)?;
    page.render_name_section(output)?;
    page.render_synopsis_section(output)?;
    page.render_description_section(output)?;
    // The help has the examples at its end. Here they come before a thousand lines about options.
    let mut examples = Vec::new();
    page.render_extra_section(&mut examples)?;
    let examples = String::from_utf8_lossy(&examples).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n");
    output.write_all(examples.as_bytes())?;
    page.render_options_section(output)?;
    for command in program.get_subcommands() {
        command_section(command, output)?;
    }
    output.write_all(SECTIONS.as_bytes())
}

/// Writes the section of a command, and then those of the commands below it.
fn command_section(command: &Command, output: &mut dyn Write) -> io::Result<()> {
    if command.is_hide_set() || command.get_name() == "help" {
        return Ok(());
    }
    let name = command.get_bin_name().unwrap_or(command.get_name());
    writeln!(output, ".SH \"{}\"", name.to_uppercase())?;
    let own = command.clone().mut_args(|argument| {
        let stands_above = argument.is_global_set() || argument.get_id() == "help";
        argument.hide(stands_above)
    });
    let page = Man::new(own);
    let mut text = Vec::new();
    page.render_description_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_options_section(&mut text)?;
    // Inside the section of the command, these are subsections.
    output.write_all(String::from_utf8_lossy(&text).replace("\n.SH ", "\n.SS ").as_bytes())?;
    for below in command.get_subcommands() {
        command_section(below, output)?;
    }
    Ok(())
}

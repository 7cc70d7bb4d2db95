"""`hermes completion`: the script that lets a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class


@click.command("completion", short_help="Write a shell's completion script.")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    r"""Write the script that completes `hermes` in a shell.

    \b
    Examples:
      eval "$(hermes completion bash)"                                       in ~/.bashrc
      hermes completion bash > /etc/bash_completion.d/hermes                 for everybody
      hermes completion zsh > ~/.zfunc/_hermes
      hermes completion fish > ~/.config/fish/completions/hermes.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None
    program = ctx.find_root().command
    click.echo(completion(program, {}, "hermes", "_HERMES_COMPLETE").source())

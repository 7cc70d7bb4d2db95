"""Java's regular expressions for names that anybody may choose: bounded in time and memory."""

from hermes.regex.matching import JavaPattern, RegexTooCostlyError, compile_java

__all__ = ["JavaPattern", "RegexTooCostlyError", "compile_java"]

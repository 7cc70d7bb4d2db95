"""Regular expressions of Java's, for names that anybody may choose: bounded in time and memory.

java_syntax   a text becomes a tree
matching      a tree becomes a program, which a name is matched with
"""

from hermes.regex.matching import JavaPattern, RegexTooCostlyError, compile_java

__all__ = ["JavaPattern", "RegexTooCostlyError", "compile_java"]

"""How much one call may ask of a registry; beyond that it is refused with a clear error."""

from typing import Final

#: A request's body. An event must fit into one message of the log: brokers take a megabyte.
MAX_BODY_BYTES: Final = 900_000

#: An event as it is written: a schema's text is escaped once more in it.
MAX_EVENT_BYTES: Final = 950_000

#: A schema's metadata, as JSON text.
MAX_METADATA_LENGTH: Final = 10_000

#: How deep a document's lists and objects are nested; a record in a record takes three levels.
MAX_DEPTH: Final = 250

#: How many lists, objects and values a document has.
MAX_VALUES: Final = 200_000

#: A subject's name: a topic's and a record's fit.
MAX_SUBJECT_LENGTH: Final = 1000

#: How many schemas a schema refers to, directly or through others.
MAX_REFERENCES: Final = 1000

#: How many characters of older versions a schema is compared with.
MAX_COMPARED_CHARACTERS: Final = 5_000_000

#: How many versions `GET /schemas` lists by default.
LISTED_SCHEMAS: Final = 1000

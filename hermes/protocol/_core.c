/* The loops of hermes/protocol/loops.py, compiled: the same functions with the same results.
 *
 * Of 0.7's messages only plain ones are handled here: magic 1, no attributes, whole and intact.
 * Whatever else a set may hold is left to Python, which alone decides about it. So there are no rules
 * about its damage here, and no errors except those of memory and of wrong arguments. Faults in
 * Kafka's records are only reported; Python decides about them, too.
 *
 * Every length is compared with the bytes available before one of them is read. Positions that
 * come from Python are checked like lengths that come from a peer.
 *
 * The limited API of Python 3.11: one build serves that version and all later ones.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <string.h>
#include <time.h>

typedef struct {
    PyTypeObject *messages_type;
    PyObject *loops; /* the module in Python */
} State;

/* -- CRC-32 ----------------------------------------------------------------------------------- */

/* Eight bytes at a time by table. zlib's takes twice as long for a message of 200 bytes, and the
 * instructions below a quarter. */
typedef uint32_t CrcTables[8][256];

static CrcTables crc_tables, crc32c_tables;

static void
make_crc_tables(CrcTables tables, uint32_t polynomial)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (crc & 1 ? polynomial : 0);
        }
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = tables[table - 1][byte];
            tables[table][byte] = (crc >> 8) ^ tables[0][crc & 0xFF];
        }
    }
}

/* `crc` is inverted here and below, going in and coming out. */
static uint32_t
crc_by_table(CrcTables tables, uint32_t crc, const uint8_t *data, size_t length)
{
    for (; length >= 8; data += 8, length -= 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = tables[7][low & 0xFF] ^ tables[6][low >> 8 & 0xFF]
            ^ tables[5][low >> 16 & 0xFF] ^ tables[4][low >> 24]
            ^ tables[3][data[4]] ^ tables[2][data[5]]
            ^ tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; length > 0; data++, length--) {
        crc = (crc >> 8) ^ tables[0][(crc ^ *data) & 0xFF];
    }
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

static int has_clmul, has_crc32c;

#define FOLD(value, constant, next)                                        \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(value, constant, 0x00), \
                                _mm_clmulepi64_si128(value, constant, 0x11)), \
                  next)
#define LOAD(data) _mm_loadu_si128((const __m128i *)(data))

/* Carry-less multiplication: "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction" (Intel, 2009), whose names the constants have. `length` is at least 64, and a
 * multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
crc_by_clmul(uint32_t crc, const uint8_t *data, size_t length)
{
    const __m128i k1k2 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i k3k4 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i k5 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i a = _mm_xor_si128(LOAD(data), _mm_cvtsi32_si128((int)crc));
    __m128i b = LOAD(data + 16), c = LOAD(data + 32), d = LOAD(data + 48);
    for (data += 64, length -= 64; length >= 64; data += 64, length -= 64) {
        a = FOLD(a, k1k2, LOAD(data));
        b = FOLD(b, k1k2, LOAD(data + 16));
        c = FOLD(c, k1k2, LOAD(data + 32));
        d = FOLD(d, k1k2, LOAD(data + 48));
    }
    a = FOLD(a, k3k4, b);
    a = FOLD(a, k3k4, c);
    a = FOLD(a, k3k4, d);
    for (; length > 0; data += 16, length -= 16) {
        a = FOLD(a, k3k4, LOAD(data));
    }
    /* 128 bits to 64, to 32 by Barrett's reduction. */
    a = _mm_xor_si128(_mm_srli_si128(a, 8), _mm_clmulepi64_si128(a, k3k4, 0x10));
    a = _mm_xor_si128(_mm_srli_si128(a, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(a, low_words), k5, 0x00));
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), polynomial, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_words), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}

__attribute__((target("sse4.2"))) static uint32_t
crc32c_by_instruction(uint32_t crc, const uint8_t *data, size_t length)
{
    uint64_t wide = crc, word;
    for (; length >= sizeof(word); data += sizeof(word), length -= sizeof(word)) {
        memcpy(&word, data, sizeof(word));
        wide = _mm_crc32_u64(wide, word);
    }
    for (crc = (uint32_t)wide; length > 0; data++, length--) {
        crc = _mm_crc32_u8(crc, *data);
    }
    return crc;
}
#endif

/* Go on from the CRC-32 of what comes before. */
static uint32_t
crc32_after(uint32_t before, const uint8_t *data, size_t length)
{
    uint32_t crc = ~before;
#if defined(__x86_64__) && defined(__GNUC__)
    if (has_clmul && length >= 64) {
        size_t whole = length & ~(size_t)15;
        crc = crc_by_clmul(crc, data, whole);
        data += whole;
        length -= whole;
    }
#endif
    return ~crc_by_table(crc_tables, crc, data, length);
}

static uint32_t
crc32_of(const uint8_t *data, size_t length)
{
    return crc32_after(0, data, length);
}

/* CRC-32C, which Kafka's batches have. */
static uint32_t
crc32c_of(const uint8_t *data, size_t length)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (has_crc32c) {
        return ~crc32c_by_instruction(~0u, data, length);
    }
#endif
    return ~crc_by_table(crc32c_tables, ~0u, data, length);
}

/* Above this size other threads may run meanwhile; below, releasing the GIL costs more than it
 * gains. */
#define LARGE_BYTES (64 * 1024)

/* With the GIL held. */
static uint32_t
crc32_of_any(const uint8_t *data, size_t length)
{
    uint32_t crc;
    if (length <= LARGE_BYTES) {
        return crc32_of(data, length);
    }
    Py_BEGIN_ALLOW_THREADS
    crc = crc32_of(data, length);
    Py_END_ALLOW_THREADS
    return crc;
}

/* -- one message ------------------------------------------------------------------------------ */

/* int32 length | int8 magic, uint8 attributes | uint32 crc | payload; magic 0 has no attributes. */
#define HEADER_BYTES 10
#define PLAIN_FLAGS 0x0100u
#define MAGIC_AND_CODEC 0xFF03u

typedef struct {
    const uint8_t *payload;
    size_t payload_bytes;
    uint32_t crc;
    Py_ssize_t following; /* where it ends */
} Message;

static uint32_t
read_uint32(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | data[1] << 16 | data[2] << 8 | data[3];
}

/* Find the uncompressed message at a position, if there is a whole one. Its CRC isn't compared.
 * With `plain`, it must be one of magic 1 without attributes. */
static int
find_message(const uint8_t *data, Py_ssize_t position, Py_ssize_t end, int plain, Message *found)
{
    if (position < 0 || end - position < HEADER_BYTES) {
        return 0;
    }
    data += position;
    uint32_t size = read_uint32(data);
    uint32_t flags = (uint32_t)data[4] << 8 | data[5];
    uint32_t after_size = HEADER_BYTES - 4; /* what is left of the header */
    if (flags != PLAIN_FLAGS) {
        if (plain) {
            return 0;
        }
        if (flags < PLAIN_FLAGS) {
            after_size = 5;
        }
        else if ((flags & MAGIC_AND_CODEC) != PLAIN_FLAGS) {
            return 0;
        }
    }
    if (size < after_size || size > (size_t)(end - position) - 4) {
        return 0;
    }
    found->crc = read_uint32(data + after_size);
    found->payload = data + 4 + after_size;
    found->payload_bytes = size - after_size;
    found->following = position + 4 + (Py_ssize_t)size;
    return 1;
}

static PyObject *
payload_of(const Message *message)
{
    return PyBytes_FromStringAndSize((const char *)message->payload,
                                     (Py_ssize_t)message->payload_bytes);
}

/* -- checks ----------------------------------------------------------------------------------- */

/* Count the messages from `*position` on, and advance it past them. With the GIL held. */
static Py_ssize_t
count_messages(const uint8_t *data, Py_ssize_t *position, Py_ssize_t end, int plain)
{
    Py_ssize_t count = 0;
    Message message;
    PyThreadState *released = end - *position > LARGE_BYTES ? PyEval_SaveThread() : NULL;
    while (find_message(data, *position, end, plain, &message)
           && crc32_of(message.payload, message.payload_bytes) == message.crc) {
        *position = message.following;
        count++;
    }
    if (released != NULL) {
        PyEval_RestoreThread(released);
    }
    return count;
}

/* The same for the arguments (data, start, end) of both functions; 0 on error. Nothing is found
 * where start and end aren't within the data, as wrong lengths in a request may have it. */
static int
count_in(PyObject *const *args, Py_ssize_t nargs, int plain, Py_ssize_t *count,
         Py_ssize_t *position, Py_ssize_t *end)
{
    Py_buffer view;
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "expected data, start and end");
        return 0;
    }
    *position = PyLong_AsSsize_t(args[1]);
    *end = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return 0;
    }
    if (*position < 0 || *position > *end || *end > view.len) {
        *count = 0;
    }
    else {
        *count = count_messages(view.buf, position, *end, plain);
    }
    PyBuffer_Release(&view);
    return 1;
}

static PyObject *
count_plain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t count, position, end;
    if (!count_in(args, nargs, 1, &count, &position, &end)) {
        return NULL;
    }
    return PyLong_FromSsize_t(position == end ? count : 0);
}

static PyObject *
count_uncompressed(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_ssize_t count, position, end;
    if (!count_in(args, nargs, 0, &count, &position, &end)) {
        return NULL;
    }
    return Py_BuildValue("nn", count, position);
}

static PyObject *
whole_bytes(PyObject *Py_UNUSED(module), PyObject *data)
{
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    Py_ssize_t position = 0;
    while (view.len - position >= 4) {
        uint32_t size = read_uint32((const uint8_t *)view.buf + position);
        if (size > INT32_MAX || (size_t)(view.len - position) - 4 < size) {
            break;
        }
        position += 4 + (Py_ssize_t)size;
    }
    PyBuffer_Release(&view);
    return PyLong_FromSsize_t(position);
}

/* -- tallies ---------------------------------------------------------------------------------- */

/* The stamp's bytes before the host's name; its magic and version: hermes/protocol/stamps.py. */
#define STAMP_BYTES 26
static const uint8_t stamp_start[5] = {0xF5, 'H', 'A', 'U', 1};

/* What one window and process have; unused while the count is 0. */
typedef struct {
    uint64_t window, process, sum;
    Py_ssize_t count;
} Tally;

/* Several producers' messages alternate in a log; of more than this, some are added more often. */
#define TALLIES 32

static uint64_t
mixed(uint32_t number, uint32_t crc)
{
    uint64_t value = ((uint64_t)number << 32 | crc) + 0x9E3779B97F4A7C15u;
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9u;
    value = (value ^ value >> 27) * 0x94D049BB133111EBu;
    return value ^ value >> 31;
}

static uint64_t
read_uint64(const uint8_t *data)
{
    return (uint64_t)read_uint32(data) << 32 | read_uint32(data + 4);
}

/* Which window and process a payload is of, and its number there; 0 without a stamp, all as it
 * was. */
static int
read_stamp(const uint8_t *payload, size_t bytes, uint64_t window_ms, Tally *of, uint32_t *number)
{
    if (bytes < STAMP_BYTES || memcmp(payload, stamp_start, sizeof(stamp_start)) != 0
        || bytes < STAMP_BYTES + (size_t)payload[5]) {
        return 0;
    }
    uint64_t time_ms = read_uint64(payload + 6);
    uint64_t process = read_uint64(payload + 14);
    if (time_ms >> 48 != 0 || process == 0) {
        return 0;
    }
    of->window = time_ms - time_ms % window_ms;
    of->process = process;
    *number = read_uint32(payload + 22);
    return 1;
}

/* Add a tally to what the dictionary has of its window and process, and empty it. */
static int
add_tally(PyObject *found, Tally *tally)
{
    Py_ssize_t count = 0;
    unsigned long long sum = 0;
    if (tally->count == 0) {
        return 0;
    }
    PyObject *key = Py_BuildValue("KK", (unsigned long long)tally->window,
                                  (unsigned long long)tally->process);
    if (key == NULL) {
        return -1;
    }
    PyObject *held = PyDict_GetItemWithError(found, key); /* borrowed */
    if (held != NULL ? !PyArg_ParseTuple(held, "nK", &count, &sum) : PyErr_Occurred() != NULL) {
        Py_DECREF(key);
        return -1;
    }
    PyObject *both = Py_BuildValue("nK", count + tally->count,
                                   (unsigned long long)(sum + tally->sum));
    int failed = both == NULL || PyDict_SetItem(found, key, both) < 0;
    Py_DECREF(key);
    Py_XDECREF(both);
    tally->count = 0;
    tally->sum = 0;
    return failed ? -1 : 0;
}

/* Count one message; the dictionary gets what has to make room for it. */
static int
add_message(PyObject *found, Tally *tallies, uint64_t window_ms, const Tally *of, uint64_t adds)
{
    int failed = 0;
    Tally *at = &tallies[(of->window / window_ms + (of->process >> 32 ^ of->process)) % TALLIES];
    if (at->window != of->window || at->process != of->process) {
        failed = add_tally(found, at);
        at->window = of->window;
        at->process = of->process;
    }
    at->count++;
    at->sum += adds;
    return failed;
}

static int
add_tallies(PyObject *found, Tally *tallies)
{
    int failed = 0;
    for (size_t place = 0; !failed && place < TALLIES; place++) {
        failed = add_tally(found, &tallies[place]);
    }
    return failed;
}

static PyObject *
tally(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    Py_ssize_t position;
    unsigned long long window_ms;
    PyObject *found;
    Message message;
    Tally tallies[TALLIES] = {{0, 0, 0, 0}};
    int failed = 0;
    if (!PyArg_ParseTuple(args, "y*nKO!", &view, &position, &window_ms, &PyDict_Type, &found)) {
        return NULL;
    }
    if (window_ms == 0) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ZeroDivisionError, "a window has no length");
        return NULL;
    }
    while (!failed && find_message(view.buf, position, view.len, 1, &message)
           && crc32_of(message.payload, message.payload_bytes) == message.crc) {
        Tally of = {0, 0, 0, 0};
        uint32_t number = 0;
        read_stamp(message.payload, message.payload_bytes, window_ms, &of, &number);
        failed = add_message(found, tallies, window_ms, &of, mixed(number, message.crc));
        position = message.following;
    }
    failed = failed || add_tallies(found, tallies);
    PyBuffer_Release(&view);
    return failed ? NULL : PyLong_FromSsize_t(position);
}

/* -- records ---------------------------------------------------------------------------------- */

/* See RecordFault and MOST_LISTED in loops.py. */
enum { FAULT_NONE, FAULT_CUT, FAULT_SIZE, FAULT_NUMBER, FAULT_HEADERS, FAULT_OFFSET, FAULT_REST };
#define MOST_LISTED 100

/* What is known of the records of a batch. */
typedef struct {
    Py_ssize_t number, unkeyed;
    int64_t newest_ms;
    int32_t listed[MOST_LISTED];
} Records;

/* Read a zigzag number of up to `bits`, and advance `*at` past it. */
static inline int
read_varint(const uint8_t **at, const uint8_t *end, int bits, int64_t *value)
{
    uint64_t number = 0;
    for (int shift = 0; shift < bits; shift += 7) {
        if (*at >= end) {
            return FAULT_CUT;
        }
        uint8_t byte = *(*at)++;
        number |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (bits == 32) {
                number &= UINT32_MAX;
            }
            *value = (int64_t)(number >> 1 ^ (0 - (number & 1)));
            return FAULT_NONE;
        }
    }
    return FAULT_NUMBER;
}

/* Read a length, and skip as many bytes; none where it is below 0, which means null. */
static inline int
skip_field(const uint8_t **at, const uint8_t *end, int64_t *length)
{
    int fault = read_varint(at, end, 32, length);
    if (fault == FAULT_NONE && *length > 0) {
        if (*length > end - *at) {
            return FAULT_CUT;
        }
        *at += *length;
    }
    return fault;
}

/* Read the headers of a record up to its end. */
static int
check_headers(const uint8_t **at, const uint8_t *end)
{
    int64_t count, length;
    int fault = read_varint(at, end, 32, &count);
    if (fault == FAULT_NONE && count < 0) {
        return FAULT_HEADERS;
    }
    for (; fault == FAULT_NONE && count > 0; count--) {
        fault = skip_field(at, end, &length);
        if (fault == FAULT_NONE && length < 0) {
            return FAULT_HEADERS;
        }
        fault = fault != FAULT_NONE ? fault : skip_field(at, end, &length);
    }
    return fault;
}

/* Read the record at `*at`, and advance past it. */
static int
check_record(const uint8_t **at, const uint8_t *end, uint64_t base_ms, Records *found)
{
    int64_t size, delta_ms, delta, key_bytes, value_bytes;
    int fault = read_varint(at, end, 32, &size);
    if (fault != FAULT_NONE) {
        return fault;
    }
    if (size > end - *at) {
        return FAULT_CUT;
    }
    if (size < 0) {
        return FAULT_SIZE;
    }
    const uint8_t *stop = *at + size;
    if (size > 0) {
        (*at)++; /* the attributes, which have no meaning yet */
    }
    if ((fault = read_varint(at, stop, 64, &delta_ms)) != FAULT_NONE
        || (fault = read_varint(at, stop, 32, &delta)) != FAULT_NONE
        || (fault = skip_field(at, stop, &key_bytes)) != FAULT_NONE
        || (fault = skip_field(at, stop, &value_bytes)) != FAULT_NONE
        || (fault = check_headers(at, stop)) != FAULT_NONE) {
        return fault;
    }
    if (*at != stop) {
        return FAULT_SIZE;
    }
    if (delta != found->number) {
        return FAULT_OFFSET;
    }
    int64_t time_ms = (int64_t)(base_ms + (uint64_t)delta_ms);
    if (time_ms > found->newest_ms) {
        found->newest_ms = time_ms;
    }
    if (key_bytes < 0) {
        if (found->unkeyed < MOST_LISTED) {
            found->listed[found->unkeyed] = (int32_t)found->number;
        }
        found->unkeyed++;
    }
    return FAULT_NONE;
}

static PyObject *
check_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end, count;
    long long base_ms;
    Records found = {.newest_ms = -1};
    int fault = FAULT_CUT;
    if (!PyArg_ParseTuple(args, "y*nnnL", &view, &start, &end, &count, &base_ms)) {
        return NULL;
    }
    if (start >= 0 && start <= end && end <= view.len) {
        const uint8_t *at = (const uint8_t *)view.buf + start;
        const uint8_t *stop = (const uint8_t *)view.buf + end;
        fault = FAULT_NONE;
        PyThreadState *released = end - start > LARGE_BYTES ? PyEval_SaveThread() : NULL;
        while (found.number < count
               && (fault = check_record(&at, stop, (uint64_t)base_ms, &found)) == FAULT_NONE) {
            found.number++;
        }
        if (released != NULL) {
            PyEval_RestoreThread(released);
        }
        if (fault == FAULT_NONE && at != stop) {
            fault = FAULT_REST;
        }
    }
    PyBuffer_Release(&view);
    PyObject *listed = PyList_New(0);
    for (Py_ssize_t n = 0; listed != NULL && n < found.unkeyed && n < MOST_LISTED; n++) {
        PyObject *number = PyLong_FromLong(found.listed[n]);
        if (number == NULL || PyList_Append(listed, number) < 0) {
            Py_CLEAR(listed);
        }
        Py_XDECREF(number);
    }
    if (listed == NULL) {
        return NULL;
    }
    return Py_BuildValue("inLnN", fault, found.number, (long long)found.newest_ms, found.unkeyed,
                         listed);
}

/* A field of a record. */
typedef struct {
    const uint8_t *data;
    size_t bytes;
} Field;

static inline int
take_field(const uint8_t **at, const uint8_t *end, Field *field)
{
    int64_t length;
    int fault = skip_field(at, end, &length);
    field->bytes = fault == FAULT_NONE && length > 0 ? (size_t)length : 0;
    field->data = *at - field->bytes;
    return fault;
}

static const char stamp_header[] = "hermes-audit";

/* Read the headers of a record, and the stamp in the first one that is one. */
static int
find_stamp(const uint8_t **at, const uint8_t *end, uint64_t window_ms, Tally *of, uint32_t *number,
           Field *stamp)
{
    int64_t count;
    Field name, value;
    int fault = read_varint(at, end, 32, &count);
    for (; fault == FAULT_NONE && count > 0; count--) {
        if ((fault = take_field(at, end, &name)) != FAULT_NONE
            || (fault = take_field(at, end, &value)) != FAULT_NONE) {
            return fault;
        }
        if (stamp->bytes == 0 && name.bytes == sizeof(stamp_header) - 1
            && memcmp(name.data, stamp_header, name.bytes) == 0
            && read_stamp(value.data, value.bytes, window_ms, of, number)) {
            *stamp = value;
        }
    }
    return fault;
}

/* What every record of a batch is counted by; see tally_records in loops.py. */
typedef struct {
    int64_t base_ms, append_ms, first;
    uint64_t window_ms;
} Counting;

/* Find what the record at `*at` counts as, and advance past it; `count` of it is 0 for nothing. */
static int
read_counted(const uint8_t **at, const uint8_t *end, const Counting *by, Tally *of, uint64_t *adds)
{
    int64_t size, delta_ms, delta;
    uint32_t number = 0, crc;
    Field key, value, stamp = {NULL, 0};
    int fault = read_varint(at, end, 32, &size);
    if (fault != FAULT_NONE || size <= 0 || size > end - *at) {
        return fault != FAULT_NONE ? fault : FAULT_SIZE;
    }
    const uint8_t *stop = *at + size;
    (*at)++; /* the attributes */
    *of = (Tally){0, 0, 0, 0};
    if ((fault = read_varint(at, stop, 64, &delta_ms)) != FAULT_NONE
        || (fault = read_varint(at, stop, 32, &delta)) != FAULT_NONE
        || (fault = take_field(at, stop, &key)) != FAULT_NONE
        || (fault = take_field(at, stop, &value)) != FAULT_NONE) {
        return fault;
    }
    int is_stamped = read_stamp(value.data, value.bytes, by->window_ms, of, &number);
    if (is_stamped) {
        crc = crc32_of(value.data, value.bytes);
        stamp.bytes = 1; /* none is looked for */
    }
    if ((fault = find_stamp(at, stop, by->window_ms, of, &number, &stamp)) != FAULT_NONE) {
        return fault;
    }
    if (*at != stop) {
        return FAULT_SIZE;
    }
    if (!is_stamped) {
        crc = crc32_after(crc32_of(stamp.data, stamp.bytes), key.data, key.bytes);
        crc = crc32_after(crc, value.data, value.bytes);
    }
    if (!is_stamped && stamp.bytes == 0) {
        int64_t time_ms = (int64_t)((uint64_t)by->base_ms + (uint64_t)delta_ms);
        time_ms = by->append_ms < 0 ? time_ms : by->append_ms;
        if (time_ms >= 0) {
            of->window = (uint64_t)time_ms - (uint64_t)time_ms % by->window_ms;
            number = (uint32_t)time_ms;
        }
    }
    of->count = delta >= by->first;
    *adds = mixed(number, crc);
    return FAULT_NONE;
}

static PyObject *
tally_records(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end, count, read = 0;
    long long base_ms, append_ms, first;
    unsigned long long window_ms;
    PyObject *found;
    Tally of, tallies[TALLIES] = {{0, 0, 0, 0}};
    uint64_t adds;
    int failed = 0;
    if (!PyArg_ParseTuple(args, "y*nnnLLLKO!", &view, &start, &end, &count, &base_ms, &append_ms,
                          &first, &window_ms, &PyDict_Type, &found)) {
        return NULL;
    }
    if (window_ms == 0) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ZeroDivisionError, "a window has no length");
        return NULL;
    }
    if (start >= 0 && start <= end && end <= view.len) {
        const Counting by = {base_ms, append_ms, first, window_ms};
        const uint8_t *at = (const uint8_t *)view.buf + start;
        const uint8_t *stop = (const uint8_t *)view.buf + end;
        while (!failed && read < count
               && read_counted(&at, stop, &by, &of, &adds) == FAULT_NONE) {
            failed = of.count && add_message(found, tallies, window_ms, &of, adds);
            read++;
        }
    }
    failed = failed || add_tallies(found, tallies);
    PyBuffer_Release(&view);
    return failed ? NULL : PyLong_FromSsize_t(read);
}

/* -- produces --------------------------------------------------------------------------------- */

/* Append a part of the data to the buffers: a copy if it is small, otherwise a view. */
static int
append_buffer(PyObject *buffers, PyObject *data, Py_ssize_t start, Py_ssize_t stop, int is_small)
{
    PyObject *buffer = NULL;
    if (is_small) {
        buffer = PySequence_GetSlice(data, start, stop);
    }
    else {
        PyObject *view = PyMemoryView_FromObject(data);
        buffer = view == NULL ? NULL : PySequence_GetSlice(view, start, stop);
        Py_XDECREF(view);
    }
    int failed = buffer == NULL ? -1 : PyList_Append(buffers, buffer);
    Py_XDECREF(buffer);
    return failed;
}

static PyObject *
collect_produces(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *buffers;
    Py_buffer view;
    Py_ssize_t position, end, prefix_bytes, largest, byte_count = 0, message_count = 0;
    const char *prefix;
    int failed = 0;
    if (!PyArg_ParseTuple(args, "Onny#nO!", &data, &position, &end, &prefix, &prefix_bytes,
                          &largest, &PyList_Type, &buffers)
        || PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    /* int32 size | prefix | int32 size of the set | set */
    const Py_ssize_t before_set = 4 + prefix_bytes + 4;
    while (!failed && position >= 0 && position <= end && end <= view.len
           && end - position >= before_set + HEADER_BYTES) {
        const uint8_t *request = (const uint8_t *)view.buf + position;
        uint32_t size = read_uint32(request), set_bytes = read_uint32(request + before_set - 4);
        Py_ssize_t start = position + before_set;
        if (size > INT32_MAX || (Py_ssize_t)size > largest || (Py_ssize_t)size > end - position - 4
            || (Py_ssize_t)size < before_set - 4 || set_bytes > size - (before_set - 4)
            || memcmp(request + 4, prefix, (size_t)prefix_bytes) != 0) {
            break;
        }
        Py_ssize_t stop = start + (Py_ssize_t)set_bytes, counted = start;
        Py_ssize_t count = count_messages(view.buf, &counted, stop, 1);
        if (count == 0 || counted != stop) {
            break;
        }
        failed = append_buffer(buffers, data, start, stop, count == 1) < 0;
        message_count += count;
        byte_count += stop - start;
        position += 4 + (Py_ssize_t)size;
    }
    PyBuffer_Release(&view);
    return failed ? NULL : Py_BuildValue("nnn", position, byte_count, message_count);
}

/* -- the encoder ------------------------------------------------------------------------------ */

/* How many bytes payloads take in a set; -1 if one of them isn't plain bytes, or too large. */
static Py_ssize_t
encoded_bytes(PyObject *payloads, Py_ssize_t count)
{
    Py_ssize_t total = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        PyObject *payload = PyTuple_GetItem(payloads, index);
        if (!PyBytes_CheckExact(payload)) {
            return -1;
        }
        Py_ssize_t length = PyBytes_Size(payload);
        if (length > INT32_MAX - HEADER_BYTES || total > PY_SSIZE_T_MAX - length - HEADER_BYTES) {
            return -1;
        }
        total += length + HEADER_BYTES;
    }
    return total;
}

static uint8_t *
write_uint32(uint8_t *place, uint32_t value)
{
    place[0] = (uint8_t)(value >> 24);
    place[1] = (uint8_t)(value >> 16);
    place[2] = (uint8_t)(value >> 8);
    place[3] = (uint8_t)value;
    return place + 4;
}

/* Payloads that aren't plain bytes are left to Python, which encodes or refuses them. */
static PyObject *
encode_plain(PyObject *module, PyObject *sequence)
{
    /* A tuple of our own: nobody changes it, not even while a large CRC lets other threads run. */
    PyObject *payloads = PySequence_Tuple(sequence);
    if (payloads == NULL) {
        return NULL;
    }
    Py_ssize_t count = PyTuple_Size(payloads);
    Py_ssize_t total = encoded_bytes(payloads, count);
    if (total < 0) {
        Py_DECREF(payloads);
        State *state = PyModule_GetState(module);
        return PyObject_CallMethod(state->loops, "encode_plain", "O", sequence);
    }
    PyObject *encoded = PyBytes_FromStringAndSize(NULL, total);
    if (encoded != NULL) {
        uint8_t *place = (uint8_t *)PyBytes_AsString(encoded);
        for (Py_ssize_t index = 0; index < count; index++) {
            PyObject *payload = PyTuple_GetItem(payloads, index);
            const uint8_t *bytes = (const uint8_t *)PyBytes_AsString(payload);
            size_t length = (size_t)PyBytes_Size(payload);
            place = write_uint32(place, (uint32_t)length + HEADER_BYTES - 4);
            *place++ = PLAIN_FLAGS >> 8;
            *place++ = PLAIN_FLAGS & 0xFF;
            place = write_uint32(place, crc32_of_any(bytes, length));
            memcpy(place, bytes, length);
            place += length;
        }
    }
    Py_DECREF(payloads);
    return encoded;
}

/* -- what messages become --------------------------------------------------------------------- */

/* How tuple makes a tuple of a subtype. It is asked rather than imitated: since 3.14 tuples hold
 * their hash, and allocating one is no longer all that it takes. */
static newfunc make_tuple;

/* Not tuple itself: it would hand out the fields, which are ours, instead of a copy. */
static int
is_tuple_type(PyObject *make)
{
    if (!PyType_Check(make) || (PyTypeObject *)make == &PyTuple_Type
        || !PyType_IsSubtype((PyTypeObject *)make, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "expected a type derived from tuple");
        return 0;
    }
    return 1;
}

typedef struct {
    PyObject *offset; /* of the data; borrowed */
    long long small;  /* the same if all offsets of the data fit, else -1 */
} Base;

static Base
base_of(PyObject *offset, Py_ssize_t data_bytes)
{
    int overflow;
    Base base = {offset, PyLong_AsLongLongAndOverflow(offset, &overflow)};
    if (overflow || base.small > LLONG_MAX - data_bytes) {
        base.small = -1;
    }
    return base;
}

static PyObject *
offset_of(const Base *base, Py_ssize_t position)
{
    if (base->small >= 0) {
        return PyLong_FromLongLong(base->small + position);
    }
    PyObject *number = PyLong_FromSsize_t(position);
    if (number == NULL) {
        return NULL;
    }
    PyObject *offset = PyNumber_Add(base->offset, number);
    Py_DECREF(number);
    return offset;
}

/* -- Kafka's produces ------------------------------------------------------------------------- */

#define BATCH_BYTES 61 /* of its header */
#define LENGTH_END 12
#define MAX_OFFSETS (1 << 30)

/* The first versions with batches by zstd, with lengths of any size and tags, with topics' ids. */
enum { LOWEST = 3, ZSTD = 7, FLEXIBLE = 9, BY_ID = 13 };

/* A request that is plain but for its batch. */
typedef struct {
    const uint8_t *place, *topic, *batch, *end;
    Py_ssize_t place_bytes, topic_bytes, batch_bytes;
    int version, acks;
    int32_t correlation_id, timeout_ms, partition;
} Produce;

static int16_t
read_int16(const uint8_t *data)
{
    return (int16_t)(data[0] << 8 | data[1]);
}

static int32_t
read_int32(const uint8_t *data)
{
    return (int32_t)read_uint32(data);
}

/* Step over some bytes; where they begin, or NULL if there are fewer. */
static const uint8_t *
take(const uint8_t **at, const uint8_t *end, int64_t count)
{
    const uint8_t *taken = *at;
    if (count < 0 || count > end - taken) {
        return NULL;
    }
    *at += count;
    return taken;
}

/* Read a length of some bytes, or in flexible versions of as many as it needs and no more. -1 for
 * null, and a worse one where there is none. */
static int64_t
read_length(const uint8_t **at, const uint8_t *end, int is_flexible, int size_bytes)
{
    const uint8_t *read;
    if (!is_flexible) {
        read = take(at, end, size_bytes);
        return read == NULL ? -2 : size_bytes == 2 ? read_int16(read) : read_int32(read);
    }
    uint64_t value = 0;
    for (int shift = 0; shift < 35 && (read = take(at, end, 1)) != NULL; shift += 7) {
        value |= (uint64_t)(*read & 0x7F) << shift;
        if (*read < 0x80) {
            return shift > 0 && *read == 0 ? -2 : (int64_t)value - 1;
        }
    }
    return -2;
}

/* Of what has no tags, in flexible versions. */
static int
skip_no_tags(const uint8_t **at, const uint8_t *end, int is_flexible)
{
    const uint8_t *count;
    return !is_flexible || ((count = take(at, end, 1)) != NULL && *count == 0);
}

/* Read what is before the batch, and find where that and the request end. */
static int
find_produce(const uint8_t *data, Py_ssize_t available, Py_ssize_t most, Produce *found)
{
    const uint8_t *at = data, *end = data + available, *read;
    if ((read = take(&at, end, 14)) == NULL || read_int32(read) > most
        || read_int32(read) > available - 4 || read_int32(read) < 10 || read_int16(read + 4) != 0) {
        return 0;
    }
    end = found->end = read + 4 + read_int32(read);
    read += 4;
    found->version = read_int16(read + 2);
    found->correlation_id = read_int32(read + 4);
    int64_t client_bytes = read_int16(read + 8);
    int is_flexible = found->version >= FLEXIBLE;
    if (found->version < LOWEST || found->version > BY_ID
        || take(&at, end, client_bytes == -1 ? 0 : client_bytes) == NULL
        || !skip_no_tags(&at, end, is_flexible)
        || read_length(&at, end, is_flexible, 2) != -1 /* no transaction */
        || (read = take(&at, end, 6)) == NULL) {
        return 0;
    }
    found->acks = read_int16(read);
    found->timeout_ms = read_int32(read + 2);
    found->place = at;
    if (found->acks < -1 || found->acks > 1 || read_length(&at, end, is_flexible, 4) != 1) {
        return 0;
    }
    found->topic_bytes
        = found->version == BY_ID ? 16 : (Py_ssize_t)read_length(&at, end, is_flexible, 2);
    if ((found->topic = take(&at, end, found->topic_bytes)) == NULL
        || read_length(&at, end, is_flexible, 4) != 1 || (read = take(&at, end, 4)) == NULL) {
        return 0;
    }
    found->partition = read_int32(read);
    found->place_bytes = at - found->place;
    found->batch_bytes = (Py_ssize_t)read_length(&at, end, is_flexible, 4);
    return (found->batch = take(&at, end, found->batch_bytes)) != NULL
           && skip_no_tags(&at, end, is_flexible) && skip_no_tags(&at, end, is_flexible)
           && skip_no_tags(&at, end, is_flexible) && at == end;
}

/* Whether a batch may be appended as it is. */
static int
is_plain_batch(const Produce *of)
{
    const uint8_t *batch = of->batch;
    if (of->batch_bytes < BATCH_BYTES || read_uint64(batch) != 0
        || read_int32(batch + 8) != of->batch_bytes - LENGTH_END || batch[16] != 2
        || read_uint32(batch + 17) != crc32c_of(batch + 21, (size_t)of->batch_bytes - 21)) {
        return 0;
    }
    int codec = read_int16(batch + 21); /* no other attribute is set */
    int32_t last = read_int32(batch + 23), count = read_int32(batch + 57);
    if (codec < 0 || codec > (of->version < ZSTD ? 3 : 4) || last < 0 || last >= MAX_OFFSETS
        || count != last + 1
        || (read_uint64(batch + 43) <= INT64_MAX && read_int32(batch + 53) < 0)) {
        return 0;
    }
    if (codec > 0) {
        return 1;
    }
    Records records = {.newest_ms = -1};
    const uint8_t *at = batch + BATCH_BYTES, *end = batch + of->batch_bytes;
    uint64_t base_ms = read_uint64(batch + 27);
    while (records.number < count && check_record(&at, end, base_ms, &records) == FAULT_NONE) {
        records.number++;
    }
    return records.number == count && at == end
           && records.newest_ms == (int64_t)read_uint64(batch + 35);
}

/* A tuple of items, which it takes; NULL if one of them is. */
static PyObject *
tuple_of(PyObject *const *items, Py_ssize_t count)
{
    PyObject *made = PyTuple_New(count);
    for (Py_ssize_t place = 0; place < count; place++) {
        if (items[place] == NULL || made == NULL) {
            Py_CLEAR(made);
            Py_XDECREF(items[place]);
        }
        else {
            PyTuple_SetItem(made, place, items[place]);
        }
    }
    return made;
}

/* The same as an instance of a type of tuples. */
static PyObject *
made_of(PyTypeObject *make, PyObject *const *items, Py_ssize_t count)
{
    PyObject *fields = tuple_of(items, count);
    PyObject *arguments = fields == NULL ? NULL : tuple_of(&fields, 1);
    PyObject *made = arguments == NULL ? NULL : make_tuple(make, arguments, NULL);
    Py_XDECREF(arguments);
    return made;
}

/* The header of a batch, as BatchHeader has it. */
static PyObject *
batch_header(PyTypeObject *make, const uint8_t *batch)
{
    PyObject *numbers[] = {
        PyLong_FromLongLong((long long)read_uint64(batch)),
        PyLong_FromLong(read_int32(batch + 8) + LENGTH_END),
        PyLong_FromLong(read_int32(batch + 12)),
        PyLong_FromUnsignedLong(read_uint32(batch + 17)),
        PyLong_FromLong(read_int16(batch + 21)),
        PyLong_FromLong(read_int32(batch + 23)),
        PyLong_FromLongLong((long long)read_uint64(batch + 27)),
        PyLong_FromLongLong((long long)read_uint64(batch + 35)),
        PyLong_FromLongLong((long long)read_uint64(batch + 43)),
        PyLong_FromLong(read_int16(batch + 51)),
        PyLong_FromLong(read_int32(batch + 53)),
        PyLong_FromLong(read_int32(batch + 57)),
    };
    return made_of(make, numbers, sizeof(numbers) / sizeof(*numbers));
}

/* What loops.py says of a request; NULL, perhaps without an error, where its topic has no name. */
static PyObject *
described(PyTypeObject *make, const uint8_t *data, Py_ssize_t position, const Produce *of)
{
    const uint8_t *request = data + position + 4;
    const char *name = (const char *)of->topic;
    PyObject *topic = of->version == BY_ID ? PyBytes_FromStringAndSize(name, of->topic_bytes)
                                           : PyUnicode_DecodeUTF8(name, of->topic_bytes, "strict");
    if (topic == NULL) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
            PyErr_Clear();
        }
        return NULL;
    }
    PyObject *facts[] = {
        PyLong_FromSsize_t(of->end - data),
        PyLong_FromLong(of->version),
        PyLong_FromLong(of->correlation_id),
        PyLong_FromLong(of->acks),
        PyLong_FromLong(of->timeout_ms),
        topic,
        PyLong_FromLong(of->partition),
        PyBytes_FromStringAndSize((const char *)of->place, of->place_bytes),
        PyLong_FromSsize_t(of->batch - request),
        batch_header(make, of->batch),
    };
    return tuple_of(facts, sizeof(facts) / sizeof(*facts));
}

static PyObject *
plain_produce(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    Produce produce;
    PyObject *found = NULL;
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "expected make, data, position and most");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[2]), most = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || !is_tuple_type(args[0])
        || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *data = view.buf;
    if (position >= 0 && position <= view.len
        && find_produce(data + position, view.len - position, most, &produce)
        && is_plain_batch(&produce)) {
        found = described((PyTypeObject *)args[0], data, position, &produce);
    }
    PyBuffer_Release(&view);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* -- Kafka's fetches -------------------------------------------------------------------------- */

/* The first versions with sessions, the earliest offset, the leader's epoch, a rack, lengths of any
 * size and tags, topics' ids, and without a replica's number; the first and the last one. */
enum {
    FETCH_LOWEST = 4,
    FETCH_START = 5,
    FETCH_SESSION = 7,
    FETCH_EPOCH = 9,
    FETCH_RACK = 11,
    FETCH_FLEXIBLE = 12,
    FETCH_BY_ID = 13,
    FETCH_NO_REPLICA = 15,
    FETCH_HIGHEST = 18,
};

/* Read a string that isn't null; NULL, perhaps without an error, where there is none. */
static PyObject *
read_text(const uint8_t **at, const uint8_t *end, int is_flexible)
{
    int64_t length = read_length(at, end, is_flexible, 2);
    const char *name = (const char *)take(at, end, length);
    PyObject *text = name == NULL ? NULL : PyUnicode_DecodeUTF8(name, (Py_ssize_t)length, "strict");
    if (name != NULL && text == NULL && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
    }
    return text;
}

/* What is wanted of a partition. */
typedef struct {
    int32_t partition, epoch, max_bytes;
    int64_t offset;
} Wanted;

static int
read_place(Wanted *wanted, int version, const uint8_t **at, const uint8_t *end)
{
    int epoch_bytes = version >= FETCH_EPOCH ? 4 : 0;
    int skipped = (version >= FETCH_FLEXIBLE ? 4 : 0) + (version >= FETCH_START ? 8 : 0);
    const uint8_t *read = take(at, end, 4 + epoch_bytes + 8 + skipped + 4);
    if (read == NULL || !skip_no_tags(at, end, version >= FETCH_FLEXIBLE)) {
        return 0;
    }
    wanted->partition = read_int32(read);
    wanted->epoch = epoch_bytes ? read_int32(read + 4) : -1;
    wanted->offset = (int64_t)read_uint64(read + 4 + epoch_bytes);
    int32_t max_bytes = read_int32(read + 4 + epoch_bytes + 8 + skipped);
    wanted->max_bytes = max_bytes < 0 ? 0 : max_bytes;
    return 1;
}

/* Read a partition of a topic and append it to a list. */
static int
read_wanted(PyTypeObject *make, PyObject *wanted, PyObject *topic, int version, const uint8_t **at,
            const uint8_t *end)
{
    Wanted place;
    if (!read_place(&place, version, at, end)) {
        return 0;
    }
    PyObject *each = NULL, *fields = Py_BuildValue("((OiLii))", topic, place.partition,
                                                   (long long)place.offset, place.max_bytes,
                                                   place.epoch);
    if (fields != NULL) {
        each = make_tuple(make, fields, NULL);
        Py_DECREF(fields);
    }
    int is_done = each != NULL && PyList_Append(wanted, each) == 0;
    Py_XDECREF(each);
    return is_done;
}

/* Read a topic's name, or its id; NULL, perhaps without an error, where there is none. */
static PyObject *
read_topic(const uint8_t **at, const uint8_t *end, int version)
{
    if (version < FETCH_BY_ID) {
        return read_text(at, end, version >= FETCH_FLEXIBLE);
    }
    const uint8_t *id = take(at, end, 16);
    return id == NULL ? NULL : PyBytes_FromStringAndSize((const char *)id, 16);
}

static int
read_topics(PyTypeObject *make, PyObject *wanted, int version, const uint8_t **at,
            const uint8_t *end)
{
    int is_flexible = version >= FETCH_FLEXIBLE;
    int64_t topics = read_length(at, end, is_flexible, 4);
    for (int64_t topic = 0; topic < topics; topic++) {
        PyObject *name = read_topic(at, end, version);
        if (name == NULL) {
            return 0;
        }
        int64_t left = read_length(at, end, is_flexible, 4);
        int is_read = left >= 0;
        while (is_read && left-- > 0) {
            is_read = read_wanted(make, wanted, name, version, at, end);
        }
        Py_DECREF(name);
        if (!is_read || !skip_no_tags(at, end, is_flexible)) {
            return 0;
        }
    }
    return topics >= 0;
}

/* Read a topic's partitions that a session is to forget, and append them to a list. */
static int
read_forgotten_topic(PyObject *forgotten, int version, const uint8_t **at, const uint8_t *end)
{
    int is_flexible = version >= FETCH_FLEXIBLE;
    PyObject *topic = read_topic(at, end, version);
    int64_t left = topic == NULL ? -1 : read_length(at, end, is_flexible, 4);
    int is_read = left >= 0;
    while (is_read && left-- > 0) {
        const uint8_t *number = take(at, end, 4);
        PyObject *each = number == NULL ? NULL : Py_BuildValue("Oi", topic, read_int32(number));
        is_read = each != NULL && PyList_Append(forgotten, each) == 0;
        Py_XDECREF(each);
    }
    Py_XDECREF(topic);
    return is_read && skip_no_tags(at, end, is_flexible);
}

static int
read_forgotten(PyObject *forgotten, int version, const uint8_t **at, const uint8_t *end)
{
    int64_t topics = 0;
    if (version >= FETCH_SESSION) {
        topics = read_length(at, end, version >= FETCH_FLEXIBLE, 4);
    }
    for (int64_t topic = 0; topic < topics; topic++) {
        if (!read_forgotten_topic(forgotten, version, at, end)) {
            return 0;
        }
    }
    return topics >= 0;
}

/* Read what follows the forgotten topics: of a rack only where it ends counts. */
static int
is_end_of_fetch(int version, const uint8_t *at, const uint8_t *end)
{
    int is_flexible = version >= FETCH_FLEXIBLE;
    if (version >= FETCH_RACK) {
        PyObject *rack = read_text(&at, end, is_flexible);
        Py_XDECREF(rack);
        if (rack == NULL) {
            return 0;
        }
    }
    return skip_no_tags(&at, end, is_flexible) && at == end;
}

/* What loops.py says of a request; NULL, perhaps without an error, where it isn't plain. */
static PyObject *
find_fetch(PyTypeObject *make, const uint8_t *at, const uint8_t *end, int version)
{
    int replica_bytes = version < FETCH_NO_REPLICA ? 4 : 0;
    const uint8_t *numbers = take(&at, end, replica_bytes + 13), *session = NULL;
    if (version < FETCH_LOWEST || version > FETCH_HIGHEST || numbers == NULL
        || (version >= FETCH_SESSION && (session = take(&at, end, 8)) == NULL)) {
        return NULL;
    }
    numbers += replica_bytes;
    PyObject *wanted = PyList_New(0), *forgotten = PyList_New(0);
    if (wanted == NULL || forgotten == NULL || !read_topics(make, wanted, version, &at, end)
        || !read_forgotten(forgotten, version, &at, end) || !is_end_of_fetch(version, at, end)) {
        Py_XDECREF(wanted);
        Py_XDECREF(forgotten);
        return NULL;
    }
    return Py_BuildValue("iiiiiiNN", read_int32(numbers), read_int32(numbers + 4),
                         read_int32(numbers + 8), (int)(int8_t)numbers[12],
                         session == NULL ? 0 : read_int32(session),
                         session == NULL ? -1 : read_int32(session + 4), wanted, forgotten);
}

static PyObject *
plain_fetch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    PyObject *found = NULL;
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "expected make, data, position and version");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[2]), version = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || !is_tuple_type(args[0])
        || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    const uint8_t *data = view.buf;
    if (position >= 0 && position <= view.len && version >= 0 && version <= FETCH_HIGHEST) {
        found = find_fetch((PyTypeObject *)args[0], data + position, data + view.len, (int)version);
    }
    PyBuffer_Release(&view);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* What loops.py says of a whole request for one partition; NULL, perhaps without an error, where
 * there is none that is plain. */
static PyObject *
find_single_fetch(PyTypeObject *make, const uint8_t *data, Py_ssize_t available, Py_ssize_t most)
{
    Wanted wanted;
    const uint8_t *at = data, *end = data + available, *head = take(&at, end, 14), *session = NULL;
    if (head == NULL || read_int32(head) > most || read_int32(head) > available - 4
        || read_int32(head) < 10 || read_int16(head + 4) != 1) {
        return NULL;
    }
    end = data + 4 + read_int32(head);
    int version = read_int16(head + 6), replica_bytes = version < FETCH_NO_REPLICA ? 4 : 0;
    int is_flexible = version >= FETCH_FLEXIBLE;
    int64_t client_bytes = read_int16(head + 12);
    const uint8_t *numbers;
    if (version < FETCH_LOWEST || version > FETCH_HIGHEST
        || take(&at, end, client_bytes == -1 ? 0 : client_bytes) == NULL
        || !skip_no_tags(&at, end, is_flexible)
        || (numbers = take(&at, end, replica_bytes + 13)) == NULL
        || (version >= FETCH_SESSION
            && ((session = take(&at, end, 8)) == NULL || read_uint32(session) != 0
                || read_uint32(session + 4) + 1 > 1))) {
        return NULL;
    }
    numbers += replica_bytes;
    const uint8_t *place = at;
    if (read_length(&at, end, is_flexible, 4) != 1) {
        return NULL;
    }
    PyObject *topic = read_topic(&at, end, version), *found = NULL;
    if (topic != NULL && read_length(&at, end, is_flexible, 4) == 1) {
        Py_ssize_t place_bytes = at - place + 4; /* with the partition's number */
        if (read_place(&wanted, version, &at, end) && skip_no_tags(&at, end, is_flexible)
            && (version < FETCH_SESSION || read_length(&at, end, is_flexible, 4) == 0)
            && is_end_of_fetch(version, at, end)) {
            PyObject *facts[] = {
                PyBytes_FromStringAndSize((const char *)data + 4, end - data - 4),
                PyLong_FromLong(version),
                PyLong_FromLong(read_int32(head + 8)),
                PyLong_FromLong(read_int32(numbers)),
                PyLong_FromLong(read_int32(numbers + 4)),
                PyLong_FromLong(read_int32(numbers + 8)),
                PyLong_FromLong((int8_t)numbers[12]),
                Py_NewRef(topic),
                PyLong_FromLong(wanted.partition),
                PyLong_FromLongLong((long long)wanted.offset),
                PyLong_FromLong(wanted.max_bytes),
                PyLong_FromLong(wanted.epoch),
                PyBytes_FromStringAndSize((const char *)place, place_bytes),
            };
            found = made_of(make, facts, sizeof(facts) / sizeof(*facts));
        }
    }
    Py_XDECREF(topic);
    return found;
}

static PyObject *
single_fetch(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    PyObject *found = NULL;
    if (nargs != 4) {
        PyErr_SetString(PyExc_TypeError, "expected make, data, position and most");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[2]), most = PyLong_AsSsize_t(args[3]);
    if (PyErr_Occurred() || !is_tuple_type(args[0])
        || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (position >= 0 && position <= view.len) {
        found = find_single_fetch((PyTypeObject *)args[0], (const uint8_t *)view.buf + position,
                                  view.len - position, most);
    }
    PyBuffer_Release(&view);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* -- Kafka's other requests ------------------------------------------------------------------- */

/* What loops.py says of a request's header; NULL, perhaps without an error, where it isn't plain. */
static PyObject *
find_request(const uint8_t *data, Py_ssize_t available, Py_ssize_t most, Py_ssize_t position)
{
    const uint8_t *at = data, *end = data + available, *head = take(&at, end, 14), *name;
    if (head == NULL || read_int32(head) > most || read_int32(head) > available - 4
        || read_int32(head) < 10 || read_int16(head + 4) == 0) {
        return NULL;
    }
    end = data + 4 + read_int32(head);
    int64_t client_bytes = read_int16(head + 12);
    client_bytes = client_bytes == -1 ? 0 : client_bytes;
    if ((name = take(&at, end, client_bytes)) == NULL) {
        return NULL;
    }
    PyObject *client = PyUnicode_DecodeUTF8((const char *)name, (Py_ssize_t)client_bytes, "replace");
    return client == NULL ? NULL
                          : Py_BuildValue("niiiNn", position + (end - data), read_int16(head + 4),
                                          read_int16(head + 6), read_int32(head + 8), client,
                                          (Py_ssize_t)(at - data) - 4);
}

static PyObject *
whole_request(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    PyObject *found = NULL;
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "expected data, position and most");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[1]), most = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (position >= 0 && position <= view.len) {
        found = find_request((const uint8_t *)view.buf + position, view.len - position, most,
                             position);
    }
    PyBuffer_Release(&view);
    return found != NULL || PyErr_Occurred() ? found : Py_NewRef(Py_None);
}

/* `StepKind` of loops.py. */
enum { STEP_FIXED = 1, STEP_SIZED, STEP_COMPACT, STEP_ARRAY, STEP_OPTIONAL, STEP_TAGS };

static int take_steps(PyObject *steps, const uint8_t **at, const uint8_t *end);

static int
take_array(PyObject *array, const uint8_t **at, const uint8_t *end)
{
    int width, is_optional;
    PyObject *parts;
    Py_ssize_t least;
    if (!PyArg_ParseTuple(array, "iO!np", &width, &PyList_Type, &parts, &least, &is_optional)) {
        return 0;
    }
    int64_t count = read_length(at, end, width == 0, width);
    if (count < (is_optional ? -1 : 0) || (count > 0 && count > (end - *at) / least)) {
        return 0;
    }
    while (count-- > 0) {
        if (!take_steps(parts, at, end)) {
            return 0;
        }
    }
    return 1;
}

/* Step over a part of a request; 0, perhaps with an error, where it isn't plain. */
static int
take_step(long kind, PyObject *what, const uint8_t **at, const uint8_t *end)
{
    const uint8_t *read;
    int64_t length;
    switch (kind) {
    case STEP_FIXED:
        return take(at, end, PyLong_AsLong(what)) != NULL;
    case STEP_SIZED:
    case STEP_COMPACT:
        length = read_length(at, end, kind == STEP_COMPACT,
                             kind == STEP_SIZED ? (int)PyLong_AsLong(what) : 0);
        return length == -1 || take(at, end, length) != NULL;
    case STEP_ARRAY:
        return take_array(what, at, end);
    case STEP_OPTIONAL:
        return (read = take(at, end, 1)) != NULL && (*read >= 0x80 || take_steps(what, at, end));
    case STEP_TAGS:
        return skip_no_tags(at, end, 1);
    default:
        return 0;
    }
}

static int
take_steps(PyObject *steps, const uint8_t **at, const uint8_t *end)
{
    Py_ssize_t count = PyList_Size(steps);
    for (Py_ssize_t place = 0; place < count; place++) {
        PyObject *step = PyList_GetItem(steps, place); /* borrowed, as what is in it */
        PyObject *kind = step == NULL ? NULL : PyTuple_GetItem(step, 0);
        PyObject *what = kind == NULL ? NULL : PyTuple_GetItem(step, 1);
        if (what == NULL || !take_step(PyLong_AsLong(kind), what, at, end)) {
            return 0;
        }
    }
    return count >= 0;
}

static PyObject *
whole_message(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    Py_ssize_t found = -1;
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "expected steps, data and position");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[2]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    if (position >= 0 && position <= view.len) {
        const uint8_t *data = view.buf, *at = data + position;
        if (take_steps(args[0], &at, data + view.len)) {
            found = at - data;
        }
    }
    PyBuffer_Release(&view);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(found);
}

static uint8_t *
write_length(uint8_t *place, int64_t length, int is_flexible)
{
    uint32_t value = (uint32_t)length + (is_flexible ? 1 : 0);
    if (!is_flexible) {
        return write_uint32(place, value);
    }
    for (; value > 0x7F; value >>= 7) {
        *place++ = (uint8_t)(value | 0x80);
    }
    *place++ = (uint8_t)value;
    return place;
}

static uint8_t *
write_uint64(uint8_t *place, uint64_t value)
{
    return write_uint32(write_uint32(place, (uint32_t)(value >> 32)), (uint32_t)value);
}

/* Of a response what is before the records, but for the bytes that name the partition. */
#define FETCHED_BYTES 64

static PyObject *
single_fetched(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 9 || !PyBytes_Check(args[3]) || !(args[8] == Py_None || PyBytes_Check(args[8]))) {
        PyErr_SetString(PyExc_TypeError, "expected version, correlation_id, level, place, mark, "
                                         "stable_end, start, size and records");
        return NULL;
    }
    long version = PyLong_AsLong(args[0]), correlation_id = PyLong_AsLong(args[1]);
    long level = PyLong_AsLong(args[2]);
    long long mark = PyLong_AsLongLong(args[4]), stable_end = PyLong_AsLongLong(args[5]);
    long long start = PyLong_AsLongLong(args[6]);
    Py_ssize_t size = PyLong_AsSsize_t(args[7]), place_bytes = PyBytes_Size(args[3]);
    Py_ssize_t held = args[8] == Py_None ? 0 : PyBytes_Size(args[8]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (size < 0 || size > INT32_MAX || place_bytes > INT16_MAX + 16) {
        PyErr_SetString(PyExc_ValueError, "that is not of a response");
        return NULL;
    }
    int is_flexible = version >= FETCH_FLEXIBLE, end_bytes = is_flexible ? 3 : 0;
    uint8_t before[FETCHED_BYTES], after[FETCHED_BYTES], *to = before + 4, *then = after;
    to = write_uint32(to, (uint32_t)correlation_id);
    if (is_flexible) {
        *to++ = 0;
    }
    to = write_uint32(to, 0);
    if (version >= FETCH_SESSION) {
        *to++ = 0;
        *to++ = 0;
        to = write_uint32(to, 0);
    }
    *then++ = 0;
    *then++ = 0;
    then = write_uint64(write_uint64(then, (uint64_t)mark), (uint64_t)stable_end);
    if (version >= FETCH_START) {
        then = write_uint64(then, (uint64_t)start);
    }
    then = write_length(then, level == 1 ? 0 : -1, is_flexible);
    if (version >= FETCH_RACK) {
        then = write_uint32(then, UINT32_MAX);
    }
    then = write_length(then, size, is_flexible);
    Py_ssize_t head_bytes = (to - before) + place_bytes + (then - after);
    write_uint32(before, (uint32_t)(head_bytes - 4 + size + end_bytes));
    PyObject *made
        = PyBytes_FromStringAndSize(NULL, head_bytes + (args[8] == Py_None ? 0 : held + end_bytes));
    if (made == NULL) {
        return NULL;
    }
    uint8_t *at = (uint8_t *)PyBytes_AsString(made);
    memcpy(at, before, (size_t)(to - before));
    at += to - before;
    memcpy(at, PyBytes_AsString(args[3]), (size_t)place_bytes);
    at += place_bytes;
    memcpy(at, after, (size_t)(then - after));
    if (args[8] != Py_None) {
        at += then - after;
        memcpy(at, PyBytes_AsString(args[8]), (size_t)held);
        memset(at + held, 0, (size_t)end_bytes);
    }
    return made;
}

/* Of a batch's header as much as says how long it is and where the next one begins; and why
 * stepping over batches ends. */
#define BATCH_STEP_BYTES 27
enum { BATCHES_CUT, BATCHES_LIMIT, BATCHES_NONE };

static PyObject *
whole_batches(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer view;
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError,
                        "expected data, position, limit, offset, end_offset and most");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[1]), limit = PyLong_AsSsize_t(args[2]);
    int64_t offset = PyLong_AsLongLong(args[3]), end_offset = PyLong_AsLongLong(args[4]);
    Py_ssize_t most = PyLong_AsSsize_t(args[5]);
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int stop = BATCHES_CUT;
    Py_ssize_t taken = 0;
    limit = limit < 0 ? 0 : limit;
    while (position >= 0 && view.len - position >= BATCH_STEP_BYTES) {
        const uint8_t *batch = (const uint8_t *)view.buf + position;
        int64_t base = (int64_t)read_uint64(batch);
        int32_t length = read_int32(batch + 8), last = read_int32(batch + 23);
        if (batch[16] != 2 || base < offset || length <= 0 || last < 0
            || base > INT64_MAX - last - 1) {
            stop = BATCHES_NONE;
            break;
        }
        if (base + last >= end_offset || LENGTH_END + (int64_t)length > limit - position) {
            stop = BATCHES_LIMIT;
            break;
        }
        if (taken >= most) {
            break;
        }
        taken++;
        position += LENGTH_END + length;
        offset = base + last + 1;
    }
    PyBuffer_Release(&view);
    return Py_BuildValue("niLn", position, stop, (long long)offset, taken);
}

/* -- payloads --------------------------------------------------------------------------------- */

/* Copy the payloads of `count` messages, one after the other. There is room for those that were
 * counted, and no more is written, should another thread change the data meanwhile. */
static void
pack(const uint8_t *data, Py_ssize_t position, Py_ssize_t end, uint64_t base, Py_ssize_t count,
     size_t room, uint8_t *values, int32_t *ends, uint64_t *places)
{
    Message message;
    size_t packed = 0;
    *ends++ = 0;
    *places++ = base + (uint64_t)position;
    while (count-- > 0 && find_message(data, position, end, 1, &message)
           && message.payload_bytes <= room - packed) {
        memcpy(values + packed, message.payload, message.payload_bytes);
        packed += message.payload_bytes;
        position = message.following;
        *ends++ = (int32_t)packed;
        *places++ = base + (uint64_t)position;
    }
}

static PyObject *
pack_plain(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, count = 0;
    long long base;
    if (!PyArg_ParseTuple(args, "y*nL", &view, &start, &base)) {
        return NULL;
    }
    Py_ssize_t end = start;
    if (start >= 0 && start <= view.len) {
        count = count_messages(view.buf, &end, view.len, 1);
    }
    Py_ssize_t packed = end - start - count * HEADER_BYTES;
    PyObject *values = NULL, *ends = NULL, *places = NULL, *result = NULL;
    if (packed > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "more than 2 GiB of payloads");
    }
    else {
        values = PyBytes_FromStringAndSize(NULL, packed);
        ends = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(int32_t));
        places = PyBytes_FromStringAndSize(NULL, (count + 1) * (Py_ssize_t)sizeof(uint64_t));
    }
    if (values != NULL && ends != NULL && places != NULL) {
        uint8_t *to_values = (uint8_t *)PyBytes_AsString(values);
        int32_t *to_ends = (int32_t *)PyBytes_AsString(ends);
        uint64_t *to_places = (uint64_t *)PyBytes_AsString(places);
        PyThreadState *released = packed > LARGE_BYTES ? PyEval_SaveThread() : NULL;
        pack(view.buf, start, end, (uint64_t)base, count, (size_t)packed, to_values, to_ends,
             to_places);
        if (released != NULL) {
            PyEval_RestoreThread(released);
        }
        result = Py_BuildValue("nnOOO", count, end, values, ends, places);
    }
    Py_XDECREF(values);
    Py_XDECREF(ends);
    Py_XDECREF(places);
    PyBuffer_Release(&view);
    return result;
}

/* -- keys ------------------------------------------------------------------------------------- */

/* Java's hash of text, 31 * hash + unit. Of ASCII, UTF-8 and the units of UTF-16 are the same. */
static uint32_t
hash_text(const uint8_t *text, Py_ssize_t length)
{
    uint32_t hash = 0;
    for (Py_ssize_t place = 0; place < length; place++) {
        hash = 31 * hash + text[place];
    }
    return hash;
}

/* The same of Arrays.hashCode(byte[]), whose bytes have a sign. */
static uint32_t
hash_bytes(const uint8_t *data, Py_ssize_t length)
{
    uint32_t hash = 1;
    for (Py_ssize_t place = 0; place < length; place++) {
        hash = 31 * hash + (uint32_t)(int8_t)data[place];
    }
    return hash;
}

/* The same of an Integer, or of a Long where there is no Integer. */
static uint32_t
hash_number(int64_t number)
{
    uint64_t bits = (uint64_t)number;
    return (uint32_t)(number == (int32_t)number ? bits : bits ^ bits >> 32);
}

/* Whether a key is ASCII text, bytes or a number of 64 bits; if so, its hash. */
static int
java_hash(PyObject *key, uint32_t *hash)
{
    Py_ssize_t length;
    if (PyBytes_CheckExact(key)) {
        length = PyBytes_Size(key);
        *hash = hash_bytes((const uint8_t *)PyBytes_AsString(key), length);
        return 1;
    }
    if (PyLong_CheckExact(key)) {
        int overflow;
        *hash = hash_number(PyLong_AsLongLongAndOverflow(key, &overflow));
        return !overflow;
    }
    if (!PyUnicode_CheckExact(key)) {
        return 0;
    }
    const char *text = PyUnicode_AsUTF8AndSize(key, &length);
    if (text == NULL) {
        PyErr_Clear(); /* a lone surrogate, or no memory: Python's loop will say which */
        return 0;
    }
    if (length != PyUnicode_GetLength(key)) {
        return 0;
    }
    *hash = hash_text((const uint8_t *)text, length);
    return 1;
}

static PyObject *
java_partitions(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *keys;
    Py_ssize_t partition_count;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &keys, &partition_count)) {
        return NULL;
    }
    if (partition_count < 1 || partition_count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "expected 1 partition or more");
        return NULL;
    }
    Py_ssize_t count = PyList_Size(keys);
    PyObject *result = PyList_New(count);
    for (Py_ssize_t place = 0; result != NULL && place < count; place++) {
        uint32_t hash;
        PyObject *number = Py_NewRef(Py_None);
        if (java_hash(PyList_GetItem(keys, place), &hash)) {
            uint32_t magnitude = hash >> 31 ? 0 - hash : hash;
            Py_DECREF(number);
            number = PyLong_FromUnsignedLong(magnitude % (uint32_t)partition_count);
        }
        if (number == NULL || PyList_SetItem(result, place, number) < 0) {
            Py_CLEAR(result);
        }
    }
    return result;
}

/* -- rows ------------------------------------------------------------------------------------- */

/* An iterator. At its end it stays where it is: what comes there is not its business. Looking at
 * how far it has come needs no lock but the GIL, which is held all the while that it advances. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *make;
    Base base; /* its offset is owned */
    Py_buffer view;
    Py_ssize_t start, position; /* of the last row's message, and after it */
    Py_ssize_t taken;
    PyObject *arguments; /* (fields,) */
    PyObject *offset;    /* of the position, or NULL */
    char is_cut;         /* never: nothing is made before it is taken */
} Rows;

/* The row of a message: `fields` with payload, offset and next offset in their places. */
static PyObject *
row_of(Rows *self, const Message *message, PyObject *next_offset)
{
    PyObject *fields = PyTuple_GetItem(self->arguments, 0); /* only ours: it may be set */
    PyObject *payload = payload_of(message);
    if (payload == NULL || PyTuple_SetItem(fields, 0, payload) < 0
        || PyTuple_SetItem(fields, 3, Py_NewRef(self->offset)) < 0
        || PyTuple_SetItem(fields, 4, Py_NewRef(next_offset)) < 0) {
        return NULL;
    }
    return make_tuple(self->make, self->arguments, NULL);
}

static PyObject *
rows_next(Rows *self)
{
    Message message;
    if (!find_message(self->view.buf, self->position, self->view.len, 1, &message)
        || crc32_of(message.payload, message.payload_bytes) != message.crc) {
        return NULL;
    }
    if (self->offset == NULL) {
        self->offset = offset_of(&self->base, self->position);
    }
    PyObject *next_offset = self->offset == NULL ? NULL : offset_of(&self->base, message.following);
    PyObject *row = next_offset == NULL ? NULL : row_of(self, &message, next_offset);
    if (row == NULL) {
        Py_XDECREF(next_offset);
        return NULL;
    }
    PyObject *former = self->offset;
    self->offset = next_offset;
    self->start = self->position;
    self->position = message.following;
    self->taken++;
    Py_DECREF(former);
    return row;
}

static PyObject *
rows_reached(Rows *self, PyObject *Py_UNUSED(nothing))
{
    if (self->taken == 0) {
        return Py_BuildValue("niii", self->taken, -1, -1, -1);
    }
    PyObject *start = offset_of(&self->base, self->start);
    PyObject *end = start == NULL ? NULL : offset_of(&self->base, self->position);
    if (end == NULL) {
        Py_XDECREF(start);
        return NULL;
    }
    return Py_BuildValue("nONN", self->taken, start, start, end);
}

static PyObject *
rows_items(PyObject *self, void *Py_UNUSED(nothing))
{
    return Py_NewRef(self);
}

static int
rows_clear(Rows *self)
{
    Py_CLEAR(self->make);
    Py_CLEAR(self->base.offset);
    Py_CLEAR(self->arguments);
    Py_CLEAR(self->offset);
    return 0;
}

static int
rows_traverse(Rows *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->make);
    Py_VISIT(self->base.offset);
    Py_VISIT(self->arguments);
    Py_VISIT(self->offset);
    Py_VISIT(self->view.obj);
    return 0;
}

static void
rows_dealloc(Rows *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    rows_clear(self);
    PyBuffer_Release(&self->view);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyObject *
rows_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *make, *data, *base, *topic, *partition, *broker;
    Py_ssize_t position, most;
    if (!PyArg_ParseTuple(args, "O!OnO!(OOO)n", &PyType_Type, &make, &data, &position, &PyLong_Type,
                          &base, &topic, &partition, &broker, &most)
        || !is_tuple_type(make)) {
        return NULL;
    }
    Rows *self = (Rows *)PyType_GenericAlloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->make = (PyTypeObject *)Py_NewRef(make);
    self->base.offset = Py_NewRef(base);
    self->position = position;
    self->arguments = Py_BuildValue("((OOOOOO))", Py_None, topic, partition, Py_None, Py_None,
                                    broker);
    if (self->arguments == NULL || PyObject_GetBuffer(data, &self->view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->base = base_of(base, self->view.len);
    return (PyObject *)self;
}

static PyMemberDef rows_members[] = {
    {"position", T_PYSSIZET, offsetof(Rows, position), READONLY, NULL},
    {"is_cut", T_BOOL, offsetof(Rows, is_cut), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef rows_getters[] = {
    {"items", rows_items, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef rows_methods[] = {
    {"reached", (PyCFunction)rows_reached, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_new, rows_new},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, rows_next},
    {Py_tp_members, rows_members},
    {Py_tp_getset, rows_getters},
    {Py_tp_methods, rows_methods},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_clear, rows_clear},
    {Py_tp_dealloc, rows_dealloc},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "hermes.protocol._core.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = rows_slots,
};

/* -- the iterator ----------------------------------------------------------------------------- */

/* Behaves like the generator in Python: an error ends it, and it can't be entered twice. It holds
 * its data until its end, then nothing. */
typedef struct {
    PyObject_HEAD
    PyTypeObject *make;  /* a type of tuples: (payload, magic, attributes, crc) */
    PyObject *unusual;   /* asked what to do at a position; NULL after the end */
    PyObject *unwound;   /* an iterator over what it gave, or NULL */
    Base base;           /* its offset is owned */
    Py_buffer view;
    Py_ssize_t position;
    PyObject *arguments; /* (fields,) */
    PyObject *fields;    /* of the message under way; borrowed: only a sole owner may set items */
    int is_running;
} Messages;

static PyObject *
message_and_offset(Messages *self, const Message *message)
{
    PyObject *payload = payload_of(message);
    if (payload == NULL || PyTuple_SetItem(self->fields, 0, payload) < 0) {
        return NULL;
    }
    PyObject *crc = PyLong_FromUnsignedLong(message->crc);
    if (crc == NULL || PyTuple_SetItem(self->fields, 3, crc) < 0) {
        return NULL;
    }
    PyObject *made = make_tuple(self->make, self->arguments, NULL);
    PyObject *offset = made == NULL ? NULL : offset_of(&self->base, message->following);
    PyObject *pair = offset == NULL ? NULL : PyTuple_New(2);
    if (pair == NULL) {
        Py_XDECREF(made);
        Py_XDECREF(offset);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, made);
    PyTuple_SetItem(pair, 1, offset);
    return pair;
}

/* Have Python take whatever is at the position: -1 on an error or at the end, otherwise 0. */
static int
take_unusual(Messages *self)
{
    PyObject *messages;
    PyObject *taken = PyObject_CallFunction(self->unusual, "n", self->position);
    if (taken == NULL || taken == Py_None) {
        Py_XDECREF(taken);
        return -1;
    }
    if (!PyTuple_Check(taken)) {
        PyErr_SetString(PyExc_TypeError, "expected messages and a position, or None");
    }
    else if (PyArg_ParseTuple(taken, "On", &messages, &self->position)) {
        self->unwound = PyObject_GetIter(messages);
    }
    Py_DECREF(taken);
    return self->unwound == NULL ? -1 : 0;
}

static PyObject *
advance(Messages *self)
{
    Message message;
    while (self->unusual != NULL) {
        if (self->unwound != NULL) {
            PyObject *item = PyIter_Next(self->unwound);
            if (item != NULL || PyErr_Occurred()) {
                return item;
            }
            Py_CLEAR(self->unwound);
        }
        if (find_message(self->view.buf, self->position, self->view.len, 1, &message)
            && crc32_of_any(message.payload, message.payload_bytes) == message.crc) {
            PyObject *pair = message_and_offset(self, &message);
            self->position = message.following;
            return pair;
        }
        if (take_unusual(self) < 0) {
            return NULL;
        }
    }
    return NULL;
}

static int
messages_clear(Messages *self)
{
    Py_CLEAR(self->make);
    Py_CLEAR(self->unusual);
    Py_CLEAR(self->unwound);
    Py_CLEAR(self->base.offset);
    Py_CLEAR(self->arguments);
    PyBuffer_Release(&self->view);
    return 0;
}

static PyObject *
messages_next(Messages *self)
{
    if (self->is_running) {
        PyErr_SetString(PyExc_ValueError, "generator already executing");
        return NULL;
    }
    self->is_running = 1;
    PyObject *item = advance(self);
    if (item == NULL && self->unusual != NULL) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback); /* releasing objects may run code */
        messages_clear(self);
        PyErr_Restore(type, value, traceback);
    }
    self->is_running = 0;
    return item;
}

static int
messages_traverse(Messages *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->make);
    Py_VISIT(self->unusual);
    Py_VISIT(self->unwound);
    Py_VISIT(self->base.offset);
    Py_VISIT(self->arguments);
    Py_VISIT(self->view.obj);
    return 0;
}

static void
messages_dealloc(Messages *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    messages_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot messages_slots[] = {
    {Py_tp_doc, "Pairs of a message and the offset to go on from behind it."},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, messages_next},
    {Py_tp_traverse, messages_traverse},
    {Py_tp_clear, messages_clear},
    {Py_tp_dealloc, messages_dealloc},
    {0, NULL},
};

static PyType_Spec messages_spec = {
    .name = "hermes.protocol._core.Messages",
    .basicsize = sizeof(Messages),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = messages_slots,
};

static PyObject *
iterate(PyObject *module, PyObject *args)
{
    PyObject *make, *data, *base, *unusual;
    if (!PyArg_ParseTuple(args, "O!OO!O", &PyType_Type, &make, &data, &PyLong_Type, &base,
                          &unusual)) {
        return NULL;
    }
    if (!is_tuple_type(make)) {
        return NULL;
    }
    State *state = PyModule_GetState(module);
    Messages *self = (Messages *)PyType_GenericAlloc(state->messages_type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->make = (PyTypeObject *)Py_NewRef(make);
    self->unusual = Py_NewRef(unusual);
    self->base.offset = Py_NewRef(base);
    self->arguments = Py_BuildValue("((Oiii))", Py_None, 1, 0, 0);
    if (self->arguments == NULL || PyObject_GetBuffer(data, &self->view, PyBUF_SIMPLE) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->fields = PyTuple_GetItem(self->arguments, 0);
    self->base = base_of(base, self->view.len);
    return (PyObject *)self;
}

/* -- handing out ------------------------------------------------------------------------------ */

/* Awaiting it gives an item at once. */
typedef struct {
    PyObject_HEAD
    PyObject *item;
} Ready;

static PySendResult
ready_send(Ready *self, PyObject *Py_UNUSED(sent), PyObject **result)
{
    *result = self->item;
    self->item = NULL;
    if (*result == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited item");
        return PYGEN_ERROR;
    }
    return PYGEN_RETURN;
}

/* For those who await by hand. */
static PyObject *
ready_next(Ready *self)
{
    PyObject *item;
    if (ready_send(self, Py_None, &item) == PYGEN_RETURN) {
        /* An instance, since a tuple would be taken for its arguments. */
        PyObject *stop = PyObject_CallFunctionObjArgs(PyExc_StopIteration, item, NULL);
        Py_DECREF(item);
        if (stop != NULL) {
            PyErr_SetObject(PyExc_StopIteration, stop);
            Py_DECREF(stop);
        }
    }
    return NULL;
}

static int
ready_traverse(Ready *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->item);
    return 0;
}

static int
ready_clear(Ready *self)
{
    Py_CLEAR(self->item);
    return 0;
}

static void
ready_dealloc(Ready *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    ready_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyType_Slot ready_slots[] = {
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, ready_next},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, ready_send},
    {Py_tp_traverse, ready_traverse},
    {Py_tp_clear, ready_clear},
    {Py_tp_dealloc, ready_dealloc},
    {0, NULL},
};

static PyType_Spec ready_spec = {
    .name = "hermes.protocol._core.Ready",
    .basicsize = sizeof(Ready),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = ready_slots,
};

/* See loops.py. It is here so that looking at the clock costs no call of Python's. */
typedef struct {
    PyObject_HEAD
    PyObject *clock;
    int clock_id; /* below 0: `clock` is called */
    double until;
    /* Until the next tick it holds, as long as `until` is what it was. */
    struct timespec held_tick;
    double held_until;
} Term;

static int
term_traverse(Term *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->clock);
    return 0;
}

static int
term_clear(Term *self)
{
    Py_CLEAR(self->clock);
    return 0;
}

static void
term_dealloc(Term *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    term_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef term_members[] = {
    {"clock", T_OBJECT_EX, offsetof(Term, clock), 0, NULL},
    {"clock_id", T_INT, offsetof(Term, clock_id), 0, NULL},
    {"until", T_DOUBLE, offsetof(Term, until), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot term_slots[] = {
    {Py_tp_members, term_members},
    {Py_tp_traverse, term_traverse},
    {Py_tp_clear, term_clear},
    {Py_tp_dealloc, term_dealloc},
    {0, NULL},
};

/* Of both base classes. */
typedef struct {
    PyObject_HEAD
    PyObject *items; /* an iterator, or NULL */
    PyObject *lease; /* a Term; NULL or None for no limit */
    Ready *ready;    /* the last one, which is given again when nobody else has it; or NULL */
    unsigned long thread;
} Supply;

static PyTypeObject *ready_type, *term_type;

/* The kernel's last tick, by the clock that also moves when a machine resumes. Reading it takes a
 * fifth of the time of a clock that is exact; while it stands still, less than a tick has passed.
 * False where there is no such clock. */
static int
read_tick(struct timespec *tick)
{
#ifdef CLOCK_REALTIME_COARSE
    return clock_gettime(CLOCK_REALTIME_COARSE, tick) == 0;
#else
    (void)tick;
    return 0;
#endif
}

/* How long a tick is, in seconds; generously, and far more if nobody knows. */
static double tick_seconds = 1e9;

static void
measure_tick(void)
{
#ifdef CLOCK_REALTIME_COARSE
    struct timespec resolution;
    if (clock_getres(CLOCK_REALTIME_COARSE, &resolution) == 0) {
        tick_seconds = 2 * ((double)resolution.tv_sec + (double)resolution.tv_nsec * 1e-9);
    }
#endif
}

/* By whatever clock in Python; -1 with an error. */
static int
is_before_end(PyObject *lease)
{
    PyObject *clock = PyObject_GetAttrString(lease, "clock");
    PyObject *told = clock == NULL ? NULL : PyObject_CallNoArgs(clock);
    double now = told == NULL ? -1 : PyFloat_AsDouble(told);
    Py_XDECREF(clock);
    Py_XDECREF(told);
    if (PyErr_Occurred()) {
        return -1;
    }
    return now < ((Term *)lease)->until; /* which may have been put back while Python ran */
}

/* Whether the lease lasts; -1 with an error. */
static int
is_held(PyObject *lease)
{
    struct timespec tick, time;
    if (lease == NULL || lease == Py_None) {
        return 1;
    }
    if (!PyObject_TypeCheck(lease, term_type)) {
        PyErr_SetString(PyExc_TypeError, "expected a Term");
        return -1;
    }
    Term *term = (Term *)lease;
    if (term->clock_id < 0) {
        return is_before_end(lease);
    }
    int has_tick = read_tick(&tick);
    if (has_tick && term->until == term->held_until && tick.tv_nsec == term->held_tick.tv_nsec
        && tick.tv_sec == term->held_tick.tv_sec) {
        return 1;
    }
    if (clock_gettime(term->clock_id, &time) != 0) {
        return is_before_end(lease);
    }
    double now = (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
    if (has_tick && now + tick_seconds < term->until) {
        term->held_tick = tick; /* read before the clock, so that the next tick comes in time */
        term->held_until = term->until;
    }
    return now < term->until;
}

/* The next item; NULL, perhaps with an error, if there is none. */
static PyObject *
supply_take(Supply *self)
{
    self->thread = PyThread_get_thread_ident();
    if (self->items == NULL) {
        return NULL;
    }
    PyObject *lease = Py_XNewRef(self->lease);
    int held = is_held(lease);
    Py_XDECREF(lease);
    if (held <= 0 || self->items == NULL) {
        return NULL;
    }
    PyObject *items = Py_NewRef(self->items); /* it may be exchanged meanwhile */
    PyObject *item = PyIter_Check(items) ? PyIter_Next(items) : NULL;
    Py_DECREF(items);
    return item;
}

static PyObject *
supply_next(Supply *self)
{
    PyObject *item = supply_take(self);
    if (item != NULL || PyErr_Occurred()) {
        return item;
    }
    return PyObject_CallMethod((PyObject *)self, "_refill", NULL);
}

static PyObject *
supply_anext(Supply *self)
{
    PyObject *item = supply_take(self);
    if (item == NULL) {
        return PyErr_Occurred() ? NULL : PyObject_CallMethod((PyObject *)self, "_refill", NULL);
    }
    if (self->ready == NULL || Py_REFCNT((PyObject *)self->ready) > 1) {
        Ready *fresh = (Ready *)PyType_GenericAlloc(ready_type, 0);
        if (fresh == NULL) {
            Py_DECREF(item);
            return NULL;
        }
        Ready *former = self->ready;
        self->ready = fresh;
        Py_XDECREF((PyObject *)former);
    }
    PyObject *ready = Py_NewRef((PyObject *)self->ready);
    PyObject *unawaited = self->ready->item;
    self->ready->item = item;
    Py_XDECREF(unawaited);
    return ready;
}

static PyObject *
supply_take_method(Supply *self, PyObject *Py_UNUSED(nothing))
{
    PyObject *item = supply_take(self);
    if (item == NULL && !PyErr_Occurred()) {
        Py_RETURN_NONE;
    }
    return item;
}

static int
supply_traverse(Supply *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->items);
    Py_VISIT(self->lease);
    Py_VISIT((PyObject *)self->ready);
    return 0;
}

static int
supply_clear(Supply *self)
{
    Py_CLEAR(self->items);
    Py_CLEAR(self->lease);
    Py_CLEAR(self->ready);
    return 0;
}

static void
supply_dealloc(Supply *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_UnTrack(self);
    supply_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMemberDef supply_members[] = {
    {"_items", T_OBJECT, offsetof(Supply, items), 0, NULL},
    {"_lease", T_OBJECT, offsetof(Supply, lease), 0, NULL},
    {"_thread", T_ULONG, offsetof(Supply, thread), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef supply_methods[] = {
    {"_take", (PyCFunction)supply_take_method, METH_NOARGS, NULL},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, NULL},
    {NULL, NULL, 0, NULL},
};

#define SUPPLY_SLOTS                          \
    {Py_tp_members, supply_members},          \
    {Py_tp_methods, supply_methods},          \
    {Py_tp_traverse, supply_traverse},        \
    {Py_tp_clear, supply_clear},              \
    {Py_tp_dealloc, supply_dealloc},          \
    {0, NULL},

static PyType_Slot supply_slots[] = {
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, supply_next},
    SUPPLY_SLOTS
};

static PyType_Slot async_supply_slots[] = {
    {Py_am_aiter, PyObject_SelfIter},
    {Py_am_anext, supply_anext},
    SUPPLY_SLOTS
};

#define BASE_FLAGS Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE

static PyType_Spec term_spec = {
    .name = "hermes.protocol._core.Term",
    .basicsize = sizeof(Term),
    .flags = BASE_FLAGS,
    .slots = term_slots,
};

static PyType_Spec supply_spec = {
    .name = "hermes.protocol._core.Supply",
    .basicsize = sizeof(Supply),
    .flags = BASE_FLAGS,
    .slots = supply_slots,
};

static PyType_Spec async_supply_spec = {
    .name = "hermes.protocol._core.AsyncSupply",
    .basicsize = sizeof(Supply),
    .flags = BASE_FLAGS,
    .slots = async_supply_slots,
};

static int
add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int failed = type == NULL ? -1 : PyModule_AddObjectRef(module, name, type);
    Py_XDECREF(type);
    return failed;
}

/* -- the module ------------------------------------------------------------------------------- */

static int
module_exec(PyObject *module)
{
    State *state = PyModule_GetState(module);
    make_crc_tables(crc_tables, 0xEDB88320u);
    make_crc_tables(crc32c_tables, 0x82F63B78u);
    measure_tick();
#if defined(__x86_64__) && defined(__GNUC__)
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    has_crc32c = __builtin_cpu_supports("sse4.2");
#endif
    make_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    state->messages_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &messages_spec, NULL);
    state->loops = PyImport_ImportModule("hermes.protocol.loops");
    if (make_tuple == NULL || state->messages_type == NULL || state->loops == NULL) {
        return -1;
    }
    ready_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &ready_spec, NULL);
    term_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &term_spec, NULL);
    if (ready_type == NULL || term_type == NULL
        || PyModule_AddObjectRef(module, "Term", (PyObject *)term_type) < 0) {
        return -1;
    }
    return add_type(module, "Rows", &rows_spec) < 0
                   || add_type(module, "Supply", &supply_spec) < 0
               ? -1
               : add_type(module, "AsyncSupply", &async_supply_spec);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->messages_type);
    Py_VISIT(state->loops);
    return 0;
}

static int
module_clear(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->messages_type);
    Py_CLEAR(state->loops);
    return 0;
}

static PyMethodDef functions[] = {
    {"check_records", check_records, METH_VARARGS, NULL},
    {"collect_produces", collect_produces, METH_VARARGS, NULL},
    {"count_plain", (PyCFunction)(void (*)(void))count_plain, METH_FASTCALL,
     NULL},
    {"count_uncompressed", (PyCFunction)(void (*)(void))count_uncompressed, METH_FASTCALL, NULL},
    {"encode_plain", encode_plain, METH_O, NULL},
    {"iterate", iterate, METH_VARARGS, NULL},
    {"java_partitions", java_partitions, METH_VARARGS, NULL},
    {"pack_plain", pack_plain, METH_VARARGS, NULL},
    {"plain_fetch", (PyCFunction)(void (*)(void))plain_fetch, METH_FASTCALL, NULL},
    {"plain_produce", (PyCFunction)(void (*)(void))plain_produce, METH_FASTCALL, NULL},
    {"single_fetched", (PyCFunction)(void (*)(void))single_fetched, METH_FASTCALL, NULL},
    {"single_fetch", (PyCFunction)(void (*)(void))single_fetch, METH_FASTCALL, NULL},
    {"tally", tally, METH_VARARGS, NULL},
    {"tally_records", tally_records, METH_VARARGS, NULL},
    {"whole_batches", (PyCFunction)(void (*)(void))whole_batches, METH_FASTCALL, NULL},
    {"whole_bytes", whole_bytes, METH_O, NULL},
    {"whole_message", (PyCFunction)(void (*)(void))whole_message, METH_FASTCALL, NULL},
    {"whole_request", (PyCFunction)(void (*)(void))whole_request, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0, NULL},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "hermes.protocol._core",
    .m_doc = "See hermes.protocol.loops.",
    .m_size = sizeof(State),
    .m_methods = functions,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&module_definition);
}

/*
 * What a broker under callgrind is asked for: to write its counters, and to count in one layer only.
 *
 * A layer is what `layer_of(file name)` says of a frame's code, a name; and whether the frame runs
 * in the thread that imported this module. A profile function, in every thread, sees each call and
 * return, and switches callgrind's collection on in the frames of one layer and off elsewhere. What
 * C functions do counts for the frame that called them.
 *
 *     collecting.dump(label)           write the counters under a label, and begin again with 0
 *     collecting.profile(layer_of)     begin to see calls, in this thread and in those to come
 *     collecting.watch(index)          collect in this layer; -1: in none
 *     collecting.layers()              list of (name, Python calls, C calls), by index; the counts
 *                                      begin again with 0
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <valgrind/callgrind.h>

#define MAX_LAYERS 256

static struct layer {
    PyObject *name;
    unsigned long long calls, c_calls;
} layers[MAX_LAYERS];
static int layer_count;
static PyObject *indices; /* file name -> index of its layer in this thread's half */
static PyObject *layer_of;
static int watched = -1;

static __thread int is_collecting;
static __thread int is_own; /* whether this is the thread that imported the module */

static void collect(int wanted)
{
    if (wanted != is_collecting) {
        is_collecting = wanted;
        CALLGRIND_TOGGLE_COLLECT;
    }
}

/* A layer has two indices, one after the other: in the own thread, and in others. */
static int find_layer(PyObject *file_name)
{
    PyObject *index = PyDict_GetItemWithError(indices, file_name);
    if (index == NULL) {
        int found;
        PyObject *name = PyErr_Occurred() ? NULL : PyObject_CallOneArg(layer_of, file_name);
        if (name == NULL)
            return -1;
        for (found = 0; found < layer_count; found += 2) {
            int same = PyObject_RichCompareBool(layers[found].name, name, Py_EQ);
            if (same < 0)
                return -1;
            if (same)
                break;
        }
        if (found == layer_count) {
            if (layer_count + 2 > MAX_LAYERS) {
                PyErr_SetString(PyExc_OverflowError, "too many layers");
                return -1;
            }
            layers[found].name = layers[found + 1].name = Py_NewRef(name);
            layer_count += 2;
        }
        Py_DECREF(name);
        index = PyLong_FromLong(found);
        if (index == NULL || PyDict_SetItem(indices, file_name, index) < 0)
            return -1;
        Py_DECREF(index); /* the dictionary has it */
    }
    return (int)PyLong_AsLong(index) + !is_own;
}

static int layer_of_frame(PyFrameObject *frame)
{
    PyCodeObject *code = PyFrame_GetCode(frame);
    int layer = find_layer(code->co_filename);
    Py_DECREF(code);
    return layer;
}

static int on_event(PyObject *self, PyFrameObject *frame, int what, PyObject *arg)
{
    int layer = -1;
    collect(0);
    if (what == PyTrace_RETURN) {
        PyFrameObject *caller = PyFrame_GetBack(frame);
        if (caller != NULL) {
            layer = layer_of_frame(caller);
            Py_DECREF(caller);
        }
    } else {
        layer = layer_of_frame(frame);
        if (layer >= 0 && what == PyTrace_CALL)
            layers[layer].calls++;
        else if (layer >= 0 && what == PyTrace_C_CALL)
            layers[layer].c_calls++;
    }
    if (layer < 0 && PyErr_Occurred())
        return -1;
    collect(layer >= 0 && layer == watched);
    return 0;
}

/* What `threading.setprofile` gives a new thread, which calls it once. */
static PyObject *begin_thread(PyObject *self, PyObject *args)
{
    PyEval_SetProfile(on_event, NULL);
    Py_RETURN_NONE;
}

static PyMethodDef begin_thread_method = {"begin_thread", begin_thread, METH_VARARGS, NULL};

static PyObject *profile(PyObject *self, PyObject *function)
{
    PyObject *threading, *begin, *done = NULL;
    Py_XSETREF(layer_of, Py_NewRef(function));
    is_own = 1;
    begin = PyCFunction_New(&begin_thread_method, NULL);
    threading = PyImport_ImportModule("threading");
    if (begin != NULL && threading != NULL)
        done = PyObject_CallMethod(threading, "setprofile", "O", begin);
    Py_XDECREF(begin);
    Py_XDECREF(threading);
    if (done != NULL)
        PyEval_SetProfile(on_event, NULL);
    return done;
}

static PyObject *dump(PyObject *self, PyObject *label)
{
    const char *text = PyUnicode_AsUTF8(label);
    if (text == NULL)
        return NULL;
    CALLGRIND_DUMP_STATS_AT(text);
    Py_RETURN_NONE;
}

static PyObject *watch(PyObject *self, PyObject *index)
{
    long wanted = PyLong_AsLong(index);
    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    watched = (int)wanted;
    Py_RETURN_NONE;
}

static PyObject *list_layers(PyObject *self, PyObject *none)
{
    PyObject *list = PyList_New(0);
    for (int index = 0; list != NULL && index < layer_count; index++) {
        struct layer *each = &layers[index];
        PyObject *row = Py_BuildValue("OKK", each->name, each->calls, each->c_calls);
        if (row == NULL || PyList_Append(list, row) < 0)
            Py_CLEAR(list);
        Py_XDECREF(row);
        each->calls = each->c_calls = 0;
    }
    return list;
}

static PyMethodDef methods[] = {
    {"dump", dump, METH_O, NULL},
    {"profile", profile, METH_O, NULL},
    {"watch", watch, METH_O, NULL},
    {"layers", list_layers, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "collecting", NULL, -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit_collecting(void)
{
    indices = PyDict_New();
    return indices == NULL ? NULL : PyModule_Create(&definition);
}

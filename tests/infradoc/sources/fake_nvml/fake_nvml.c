/* A libnvidia-ml.so.1 that plays a script, so that the real pynvml can be driven without a GPU.
 *
 * FAKE_NVML_SCRIPT names a text file. A line is `SECONDS GPU KEY VALUE`: from SECONDS after nvmlInit on, KEY of that GPU
 * (an index, or * for all) has VALUE; the newest line wins. `5+2` is 5 at that time and grows by 2 a second. Keys:
 *   gpus N, driver TEXT                     GPU is *
 *   ret:FUNCTION CODE                       the function returns CODE (0: works again)
 *   hang:FUNCTION 1                         the function does not return until the script says 0
 *   lost CODE                               every call on this GPU returns CODE
 *   xid CODE                                one event at that time
 *   procs PID:BYTES,PID:BYTES               compute processes ("none": none)
 *   fields: field:ID or field:ID:SCOPE      64-bit values; a field without a line is not supported
 *   gpm:ID PERCENT                          GPM metric; `gpm 1` says that the device has them
 *   mig N, mig.I.used BYTES                 N instances
 *   everything else                         see the functions below; a figure without a line is not supported
 * FAKE_NVML_COUNTS names a file that gets `FUNCTION CALLS` lines at nvmlShutdown.
 * abi.h is generated from pynvml's own ctypes: layouts are checked when this file is compiled.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, LOST = 15, MISSING = 28 };

typedef struct { unsigned gpu, used; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned pid; unsigned long long usedGpuMemory; unsigned gpuInstanceId, computeInstanceId; } process_t;
typedef union { double d; unsigned ui; unsigned long long ull; } value_t;
typedef struct {
    uint32_t fieldId, scopeId; int64_t timestamp, latencyUsec; unsigned valueType, nvmlReturn; value_t value;
} field_t;
typedef struct { char busIdLegacy[16]; unsigned domain, bus, device, pciDeviceId, pciSubSystemId; char busId[32]; } pci_t;
typedef struct { void *device; unsigned long long eventType, eventData; unsigned gpuInstanceId, computeInstanceId; } event_t;
typedef struct { unsigned version, sensorType; int temperature; } temperature_t;
typedef struct { unsigned metricId, nvmlReturn; double value; char *shortName, *longName, *unit; } metric_t;
typedef struct { unsigned version, numMetrics; void *sample1, *sample2; metric_t metrics[]; } metrics_t;
typedef struct { unsigned version, isSupportedDevice; } gpm_support_t;
#include "abi.h"

typedef struct { double at; int gpu; char key[48]; char text[256]; int spent; } line_t;
typedef struct { int gpu, instance; } device_t;
typedef struct { char name[64]; long calls; } count_t;

static line_t lines[2000];
static int line_count;
static device_t devices[16], instances[16][8];
static count_t counts[128];
static struct timespec start;
static int ready;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)(t.tv_sec - start.tv_sec) + (double)(t.tv_nsec - start.tv_nsec) / 1e9;
}

static void load(void) {
    const char *path = getenv("FAKE_NVML_SCRIPT");
    FILE *file = path ? fopen(path, "r") : NULL;
    char row[512], gpu[16];
    while (file && fgets(row, sizeof row, file) && line_count < 2000) {
        line_t *line = &lines[line_count];
        if (row[0] == '#' || sscanf(row, "%lf %15s %47s %255[^\n]", &line->at, gpu, line->key, line->text) != 4) continue;
        line->gpu = gpu[0] == '*' ? -1 : atoi(gpu);
        line_count++;
    }
    if (file) fclose(file);
}

static line_t *find(int gpu, const char *key) {
    line_t *best = NULL;
    double t = now();
    for (int i = 0; i < line_count; i++) {
        line_t *line = &lines[i];
        int mine = line->gpu == -1 || line->gpu == gpu;
        if (mine && line->at <= t && !strcmp(line->key, key) && (!best || line->at >= best->at)) best = line;
    }
    return best;
}

static int number(int gpu, const char *key, double *value) {
    line_t *line = find(gpu, key);
    char *rest;
    if (!line || !strcmp(line->text, "none")) return NOT_SUPPORTED;
    *value = strtod(line->text, &rest);
    if (*rest == '+') *value += strtod(rest + 1, NULL) * (now() - line->at);
    return OK;
}

/* Counts the call, then tells what the script makes of it: OK to go on. */
static int enter(const char *function, device_t *device) {
    char key[64];
    double code = 0;
    int gpu = device ? device->gpu : -1;
    for (int i = 0; i < 128; i++) {
        if (!counts[i].name[0]) strncpy(counts[i].name, function, 63);
        if (!strcmp(counts[i].name, function)) { counts[i].calls++; break; }
    }
    if (!ready) return 1;
    snprintf(key, sizeof key, "hang:%s", function);
    while (number(gpu, key, &code) == OK && code) usleep(5000);
    code = 0;
    if (device && number(gpu, "lost", &code) == OK && code) return (int)code;
    snprintf(key, sizeof key, "ret:%s", function);
    return number(gpu, key, &code) == OK ? (int)code : OK;
}

#define ENTER(device) do { int code_ = enter(__func__, device); if (code_) return code_; } while (0)

static int put_unsigned(device_t *device, const char *key, unsigned *out) {
    double value;
    int code = number(device->gpu, key, &value);
    if (code == OK) *out = (unsigned)value;
    return code;
}

static int put_long(device_t *device, const char *key, unsigned long long *out) {
    double value;
    int code = number(device->gpu, key, &value);
    if (code == OK) *out = (unsigned long long)value;
    return code;
}

API int nvmlInitWithFlags(unsigned flags) {
    double code = 0;
    (void)flags;
    if (!ready) { clock_gettime(CLOCK_MONOTONIC, &start); line_count = 0; load(); }
    if (number(-1, "ret:nvmlInitWithFlags", &code) == OK && code) return (int)code;
    for (int g = 0; g < 16; g++) {
        devices[g] = (device_t){g, -1};
        for (int i = 0; i < 8; i++) instances[g][i] = (device_t){g, i};
    }
    ready++;
    return enter("nvmlInitWithFlags", NULL);
}

API int nvmlShutdown(void) {
    const char *path = getenv("FAKE_NVML_COUNTS");
    FILE *file = path ? fopen(path, "w") : NULL;
    for (int i = 0; file && i < 128 && counts[i].name[0]; i++) fprintf(file, "%s %ld\n", counts[i].name, counts[i].calls);
    if (file) fclose(file);
    if (ready) ready--;
    return OK;
}

API const char *nvmlErrorString(int code) { (void)code; return "scripted error"; }

API int nvmlDeviceGetCount_v2(unsigned *count) {
    double value = 1;
    ENTER(NULL);
    number(-1, "gpus", &value);
    *count = (unsigned)value;
    return OK;
}

API int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    ENTER(NULL);
    line_t *line = find(-1, "driver");
    snprintf(out, size, "%s", line ? line->text : "580.00");
    return OK;
}

API int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **out) {
    ENTER(&devices[index]);
    *out = &devices[index];
    return OK;
}

API int nvmlDeviceGetUUID(device_t *d, char *out, unsigned size) {
    ENTER(d);
    if (d->instance < 0) snprintf(out, size, "GPU-fake-%d", d->gpu);
    else snprintf(out, size, "MIG-fake-%d-%d", d->gpu, d->instance);
    return OK;
}

API int nvmlDeviceGetName(device_t *d, char *out, unsigned size) {
    ENTER(d);
    line_t *line = find(d->gpu, "name");
    snprintf(out, size, "%s", line ? line->text : "Fake GPU");
    return OK;
}

API int nvmlDeviceGetPciInfo_v3(device_t *d, pci_t *out) {
    ENTER(d);
    memset(out, 0, sizeof *out);
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", d->gpu + 1);
    return OK;
}

API int nvmlDeviceGetCudaComputeCapability(device_t *d, int *major, int *minor) {
    ENTER(d);
    *major = 9;
    *minor = 0;
    return OK;
}

static int memory(device_t *d, unsigned long long *total, unsigned long long *used, unsigned long long *reserved) {
    char key[32];
    double mig = 0;
    if (d->instance >= 0) {
        snprintf(key, sizeof key, "mig.%d.used", d->instance);
        *total = 10000000000ull;
        *reserved = 0;
        return put_long(d, key, used);
    }
    if (number(d->gpu, "mig", &mig) == OK && mig) return 4; /* the whole device: special rights */
    if (put_long(d, "reserved", reserved)) *reserved = 0;
    if (put_long(d, "total", total)) *total = 80000000000ull;
    return put_long(d, "used", used);
}

API int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *out) {
    unsigned long long reserved;
    ENTER(d);
    int code = memory(d, &out->total, &out->used, &reserved);
    if (!code) { out->used += reserved; out->free = out->total - out->used; }
    return code;
}

API int nvmlDeviceGetMemoryInfo_v2(device_t *d, memory_v2_t *out) {
    ENTER(d);
    if (out->version != (sizeof *out | 2u << 24)) return 25;
    int code = memory(d, &out->total, &out->used, &out->reserved);
    if (!code) out->free = out->total - out->used - out->reserved;
    return code;
}

API int nvmlDeviceGetUtilizationRates(device_t *d, utilization_t *out) {
    double mig = 0;
    ENTER(d);
    if (number(d->gpu, "mig", &mig) == OK && mig) return NOT_SUPPORTED;
    out->used = 0;
    return put_unsigned(d, "util", &out->gpu);
}

API int nvmlDeviceGetClockInfo(device_t *d, unsigned kind, unsigned *out) {
    ENTER(d);
    return put_unsigned(d, kind == 1 ? "clock.sm" : "clock.memory", out);
}

API int nvmlDeviceGetMaxClockInfo(device_t *d, unsigned kind, unsigned *out) {
    ENTER(d);
    return put_unsigned(d, kind == 1 ? "max.sm" : "max.memory", out);
}

static int reasons(device_t *d, unsigned long long *out) {
    line_t *line = find(d->gpu, "reasons");
    if (!line) return NOT_SUPPORTED;
    *out = strtoull(line->text, NULL, 0);
    return OK;
}

API int nvmlDeviceGetCurrentClocksEventReasons(device_t *d, unsigned long long *out) { ENTER(d); return reasons(d, out); }
API int nvmlDeviceGetCurrentClocksThrottleReasons(device_t *d, unsigned long long *out) { ENTER(d); return reasons(d, out); }
API int nvmlDeviceGetPowerUsage(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "power", out); }
API int nvmlDeviceGetEnforcedPowerLimit(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "limit", out); }
API int nvmlDeviceGetPowerManagementDefaultLimit(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "limit.default", out); }

API int nvmlDeviceGetPowerManagementLimitConstraints(device_t *d, unsigned *low, unsigned *high) {
    ENTER(d);
    *low = 100000;
    return put_unsigned(d, "limit.max", high);
}

API int nvmlDeviceGetTemperature(device_t *d, unsigned sensor, unsigned *out) {
    ENTER(d);
    return sensor ? INVALID : put_unsigned(d, "temp", out);
}

API int nvmlDeviceGetTemperatureV(device_t *d, temperature_t *io) {
    double value;
    ENTER(d);
    if (io->version != (sizeof *io | 1u << 24)) return 25;
    int code = number(d->gpu, "temp", &value);
    if (!code) io->temperature = (int)value;
    return code;
}

API int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, process_t *out) {
    unsigned found = 0;
    ENTER(d);
    line_t *line = find(d->gpu, "procs");
    if (!line) return NOT_SUPPORTED;
    for (char *at = line->text; at && strcmp(line->text, "none"); at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char *size;
        unsigned pid = (unsigned)strtoul(at, &size, 10);
        if (out && found < *count) out[found] = (process_t){pid, strtoull(size + 1, NULL, 10), 0, 0};
        found++;
    }
    int room = found <= *count && (out || !found);
    *count = found;
    return room ? OK : SMALL;
}

API int nvmlDeviceGetFieldValues(device_t *d, int count, field_t *values) {
    char key[32];
    double value;
    ENTER(d);
    for (int i = 0; i < count; i++) {
        field_t *one = &values[i];
        if (one->scopeId) snprintf(key, sizeof key, "field:%u:%u", one->fieldId, one->scopeId);
        else snprintf(key, sizeof key, "field:%u", one->fieldId);
        one->nvmlReturn = (unsigned)number(d->gpu, key, &value);
        one->valueType = 3;
        if (!one->nvmlReturn) one->value.ull = (unsigned long long)value;
    }
    return OK;
}

API int nvmlDeviceGetTotalEccErrors(device_t *d, unsigned kind, unsigned counter, unsigned long long *out) {
    ENTER(d);
    return counter ? INVALID : put_long(d, kind ? "ecc.uncorrected" : "ecc.corrected", out);
}

API int nvmlDeviceGetRemappedRows(device_t *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    ENTER(d);
    int code = put_unsigned(d, "remap.corrected", corrected);
    if (code) return code;
    put_unsigned(d, "remap.uncorrected", uncorrected);
    put_unsigned(d, "remap.pending", pending);
    put_unsigned(d, "remap.failed", failed);
    return OK;
}

API int nvmlDeviceGetRetiredPages(device_t *d, unsigned cause, unsigned *count, unsigned long long *pages) {
    unsigned found = 0;
    ENTER(d);
    int code = put_unsigned(d, cause ? "retired.double" : "retired.single", &found);
    if (code) return code;
    for (unsigned i = 0; pages && i < found && i < *count; i++) pages[i] = 0x1000ull * (i + 1);
    code = pages && *count >= found ? OK : SMALL;
    *count = found;
    return code;
}

API int nvmlDeviceGetCurrPcieLinkGeneration(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "pcie.gen", out); }
API int nvmlDeviceGetMaxPcieLinkGeneration(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "pcie.gen.max", out); }
API int nvmlDeviceGetCurrPcieLinkWidth(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "pcie.lanes", out); }
API int nvmlDeviceGetMaxPcieLinkWidth(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "pcie.lanes.max", out); }
API int nvmlDeviceGetPcieReplayCounter(device_t *d, unsigned *out) { ENTER(d); return put_unsigned(d, "pcie.replays", out); }

API int nvmlDeviceGetPcieThroughput(device_t *d, unsigned kind, unsigned *out) {
    ENTER(d);
    usleep(20000); /* as the driver does */
    return put_unsigned(d, kind ? "pcie.rx" : "pcie.tx", out);
}

API int nvmlDeviceGetMigMode(device_t *d, unsigned *current, unsigned *pending) {
    double value;
    ENTER(d);
    int code = number(d->gpu, "mig", &value);
    *current = *pending = !code && value > 0;
    return code;
}

API int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *out) { (void)d; ENTER(d); *out = 7; return OK; }

API int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned index, device_t **out) {
    double value = 0;
    ENTER(d);
    number(d->gpu, "mig", &value);
    if (index >= (unsigned)value) return NOT_FOUND;
    *out = &instances[d->gpu][index];
    return OK;
}

API int nvmlGpmQueryDeviceSupport(device_t *d, gpm_support_t *out) {
    double value = 0;
    ENTER(d);
    if (out->version != 1) return 25;
    number(d->gpu, "gpm", &value);
    out->isSupportedDevice = value > 0;
    return OK;
}

API int nvmlGpmSampleAlloc(int **out) { ENTER(NULL); *out = calloc(1, sizeof **out); return OK; }
API int nvmlGpmSampleFree(int *sample) { ENTER(NULL); free(sample); return OK; }
API int nvmlGpmSampleGet(device_t *d, int *sample) { ENTER(d); *sample = d->gpu + 1; return OK; }

API int nvmlGpmMetricsGet(metrics_t *io) {
    char key[32];
    ENTER(NULL);
    int one = *(int *)io->sample1, two = *(int *)io->sample2;
    if (io->version != 1 || !one || one != two || io->sample1 == io->sample2) return INVALID;
    for (unsigned i = 0; i < io->numMetrics; i++) {
        snprintf(key, sizeof key, "gpm:%u", io->metrics[i].metricId);
        io->metrics[i].nvmlReturn = (unsigned)number(one - 1, key, &io->metrics[i].value);
    }
    return OK;
}

/* --- events: a set is an array of flags per GPU --- */

API int nvmlEventSetCreate(int **out) { ENTER(NULL); *out = calloc(16, sizeof **out); return OK; }
API int nvmlEventSetFree(int *set) { ENTER(NULL); free(set); return OK; }

API int nvmlDeviceRegisterEvents(device_t *d, unsigned long long types, int *set) {
    ENTER(d);
    if (types != 8) return INVALID;
    set[d->gpu] = 1;
    return OK;
}

API int nvmlEventSetWait_v2(int *set, event_t *out, unsigned timeout) {
    ENTER(NULL);
    if (timeout) usleep(timeout * 1000);
    for (int i = 0; i < line_count; i++) {
        line_t *line = &lines[i];
        if (strcmp(line->key, "xid") || line->spent || line->at > now() || line->gpu < 0 || !set[line->gpu]) continue;
        line->spent = 1;
        *out = (event_t){&devices[line->gpu], 8, strtoull(line->text, NULL, 10), 0xFFFFFFFF, 0xFFFFFFFF};
        return OK;
    }
    return TIMEOUT;
}

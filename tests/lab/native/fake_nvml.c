/* libnvidia-ml.so.1 over an INI file: what nvidia-ml-py (pynvml) and engines ask of NVML.
 *
 *   gcc -shared -fPIC -O1 -o libnvidia-ml.so.1 fake_nvml.c
 */
#include "fake_gpu.h"

#define API __attribute__((visibility("default")))
typedef void *Handle;
typedef unsigned int uint;
typedef unsigned long long ulong64;
typedef struct { ulong64 total, free, used; } Memory;
typedef struct { uint version; ulong64 total, reserved, free, used; } MemoryV2;
typedef struct { char legacy[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; } Pci;
typedef struct { uint gpu, memory; } Utilization;
typedef struct { uint pid; ulong64 used; uint instance, compute_instance; } Process;
typedef struct { uint version; int sensor, celsius; } Temperature;

static char tokens[64]; /* a handle is the address of its card's token */
static int users;

static int card_of(Handle handle) { return (int)((char *)handle - tokens); }

static int checked(Handle handle) {
  if (!users) return UNINITIALIZED;
  if ((char *)handle < tokens || card_of(handle) >= card_count()) return INVALID;
  return card_state(card_of(handle));
}
#define CHECK(handle) do { int bad = checked(handle); if (bad) return bad; } while (0)

static int copied(const char *text, char *out, uint room) {
  if (room < strlen(text) + 1) return TOO_SMALL;
  strcpy(out, text);
  return OK;
}
static ulong64 mebibytes(double count) { return (ulong64)(count * 1048576.0); }
static int has_ecc(int card) { return strcmp(text_of(card, "ecc.mode.current", "N/A"), "N/A"); }

/* --- the library and the system --- */
static int start(void) {
  if (!read_ini()) return NO_DRIVER;
  int state = driver_state();
  if (state == OK) users++;
  return state;
}
API int nvmlInit_v2(void) { return start(); }
API int nvmlInit(void) { return start(); }
API int nvmlInitWithFlags(uint flags) { (void)flags; return start(); }
API int nvmlShutdown(void) { return users ? (users--, OK) : UNINITIALIZED; }
API const char *nvmlErrorString(int code) {
  switch (code) {
  case OK: return "Success";
  case UNINITIALIZED: return "Uninitialized";
  case INVALID: return "Invalid Argument";
  case NOT_SUPPORTED: return "Not Supported";
  case TOO_SMALL: return "Insufficient Size";
  case NO_DRIVER: return "Driver Not Loaded";
  case LOST: return "GPU is lost";
  case MISMATCH: return "Driver/library version mismatch";
  }
  return "Unknown Error";
}
API int nvmlSystemGetDriverVersion(char *out, uint room) {
  return copied(system_text("driver_version", DRIVER), out, room);
}
API int nvmlSystemGetNVMLVersion(char *out, uint room) {
  char text[64];
  snprintf(text, sizeof text, "12.%s", system_text("driver_version", DRIVER));
  return copied(text, out, room);
}
API int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  const char *text = system_text("cuda_version", "12.4"), *dot = strchr(text, '.');
  *version = atoi(text) * 1000 + (dot ? atoi(dot + 1) : 0) * 10;
  return OK;
}
API int nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}
API int nvmlSystemGetProcessName(uint pid, char *out, uint room) {
  for (int card = 0; card < card_count(); card++) {
    char list[1024], *rest;
    snprintf(list, sizeof list, "%s", text_of(card, "proc", ""));
    for (char *at = strtok_r(list, ";", &rest); at; at = strtok_r(0, ";", &rest)) {
      char *name = strchr(at, ':'), *memory = strrchr(at, ':');
      if ((uint)atoi(at) != pid || !name || memory <= name) continue;
      *memory = 0;
      return copied(name + 1, out, room);
    }
  }
  return NOT_FOUND;
}

/* --- finding a card --- */
API int nvmlDeviceGetCount_v2(uint *count) {
  if (!users) return UNINITIALIZED;
  *count = card_count();
  return OK;
}
API int nvmlDeviceGetCount(uint *count) { return nvmlDeviceGetCount_v2(count); }
API int nvmlDeviceGetHandleByIndex_v2(uint index, Handle *handle) {
  if (!users) return UNINITIALIZED;
  if ((int)index >= card_count()) return INVALID;
  *handle = tokens + index;
  return card_state(index);
}
API int nvmlDeviceGetHandleByIndex(uint index, Handle *handle) {
  return nvmlDeviceGetHandleByIndex_v2(index, handle);
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, Handle *handle) {
  char own[96];
  for (int card = 0; card < card_count(); card++) {
    uuid_of(card, own);
    if (!strcmp(own, uuid)) return nvmlDeviceGetHandleByIndex_v2(card, handle);
  }
  return NOT_FOUND;
}

/* --- what a card is --- */
API int nvmlDeviceGetName(Handle handle, char *out, uint room) {
  CHECK(handle);
  return copied(text_of(card_of(handle), "name", CARD), out, room);
}
API int nvmlDeviceGetUUID(Handle handle, char *out, uint room) {
  CHECK(handle);
  char uuid[96];
  uuid_of(card_of(handle), uuid);
  return copied(uuid, out, room);
}
API int nvmlDeviceGetSerial(Handle handle, char *out, uint room) {
  CHECK(handle);
  const char *serial = text_of(card_of(handle), "serial", 0);
  return serial ? copied(serial, out, room) : NOT_SUPPORTED;
}
API int nvmlDeviceGetVbiosVersion(Handle handle, char *out, uint room) {
  CHECK(handle);
  return copied(text_of(card_of(handle), "vbios_version", "95.02.3C.40.B8"), out, room);
}
API int nvmlDeviceGetIndex(Handle handle, uint *out) {
  CHECK(handle);
  *out = card_of(handle);
  return OK;
}
API int nvmlDeviceGetMinorNumber(Handle handle, uint *out) {
  CHECK(handle);
  *out = (uint)number_of(card_of(handle), "minor", card_of(handle));
  return OK;
}
API int nvmlDeviceGetPciInfo_v3(Handle handle, Pci *pci) {
  CHECK(handle);
  char bus[32];
  bus_of(card_of(handle), bus);
  memset(pci, 0, sizeof *pci);
  snprintf(pci->bus_id, sizeof pci->bus_id, "%s", bus);
  snprintf(pci->legacy, sizeof pci->legacy, "%.12s", strlen(bus) > 12 ? bus + 4 : bus);
  sscanf(bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
  pci->id = strtoul(text_of(card_of(handle), "pci.device_id", "0x268410DE"), 0, 0);
  return OK;
}
API int nvmlDeviceGetPciInfo_v2(Handle handle, Pci *pci) {
  return nvmlDeviceGetPciInfo_v3(handle, pci);
}
API int nvmlDeviceGetPciInfo(Handle handle, Pci *pci) {
  return nvmlDeviceGetPciInfo_v3(handle, pci);
}
API int nvmlDeviceGetCudaComputeCapability(Handle handle, int *major, int *minor) {
  CHECK(handle);
  const char *text = text_of(card_of(handle), "compute_cap", "8.9"), *dot = strchr(text, '.');
  *major = atoi(text);
  *minor = dot ? atoi(dot + 1) : 0;
  return OK;
}

/* --- plain numbers --- */
#define NUMBER(function, key, otherwise, factor)                     \
  API int function(Handle handle, uint *out) {                       \
    CHECK(handle);                                                   \
    *out = (uint)(number_of(card_of(handle), key, otherwise) * factor); \
    return OK;                                                       \
  }
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.link.gen.max", 4, 1)
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie.link.gen.gpumax", 4, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.link.gen.current", 1, 1)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, "pcie.link.width.max", 16, 1)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.link.width.current", 16, 1)
NUMBER(nvmlDeviceGetPersistenceMode, "persistence_mode", 1, 1)
NUMBER(nvmlDeviceGetNumGpuCores, "cores", 16384, 1)
NUMBER(nvmlDeviceGetNumaNodeId, "gpu_numa", 0, 1)
NUMBER(nvmlDeviceGetComputeMode, "compute_mode", 0, 1)
NUMBER(nvmlDeviceGetPowerManagementLimit, "power.limit", 450, 1000)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "power.limit", 450, 1000)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, "power.default_limit", 450, 1000)
NUMBER(nvmlDeviceGetPowerUsage, "power.draw", 25, 1000)
API int nvmlDeviceGetPowerManagementLimitConstraints(Handle handle, uint *least, uint *most) {
  CHECK(handle);
  *least = (uint)(number_of(card_of(handle), "power.min_limit", 150) * 1000);
  *most = (uint)(number_of(card_of(handle), "power.max_limit", 600) * 1000);
  return OK;
}
API int nvmlDeviceGetTemperature(Handle handle, int sensor, uint *out) {
  (void)sensor;
  CHECK(handle);
  *out = (uint)number_of(card_of(handle), "temperature.gpu", 30);
  return OK;
}
API int nvmlDeviceGetTemperatureV(Handle handle, Temperature *out) {
  CHECK(handle);
  out->celsius = (int)number_of(card_of(handle), "temperature.gpu", 30);
  return OK;
}
API int nvmlDeviceGetUtilizationRates(Handle handle, Utilization *out) {
  CHECK(handle);
  out->gpu = (uint)number_of(card_of(handle), "utilization.gpu", 0);
  out->memory = (uint)number_of(card_of(handle), "utilization.memory", 0);
  return OK;
}
enum { CLOCK_MEMORY = 2 };
API int nvmlDeviceGetClockInfo(Handle handle, int kind, uint *out) {
  CHECK(handle);
  const char *key = kind == CLOCK_MEMORY ? "clocks.mem" : "clocks.sm";
  *out = (uint)number_of(card_of(handle), key, 210);
  return OK;
}
API int nvmlDeviceGetMaxClockInfo(Handle handle, int kind, uint *out) {
  CHECK(handle);
  const char *key = kind == CLOCK_MEMORY ? "clocks.max.mem" : "clocks.max.sm";
  *out = (uint)number_of(card_of(handle), key, 3105);
  return OK;
}
API int nvmlDeviceGetCurrentClocksEventReasons(Handle handle, ulong64 *out) {
  CHECK(handle);
  *out = strtoull(text_of(card_of(handle), "clocks_event_reasons.active", "0x1"), 0, 0);
  return OK;
}
API int nvmlDeviceGetCurrentClocksThrottleReasons(Handle handle, ulong64 *out) {
  return nvmlDeviceGetCurrentClocksEventReasons(handle, out);
}

/* --- memory and its errors --- */
API int nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryV2 *out) {
  CHECK(handle);
  int card = card_of(handle);
  out->total = mebibytes(number_of(card, "memory.total", 24564));
  out->reserved = mebibytes(number_of(card, "memory.reserved", 386));
  out->used = mebibytes(number_of(card, "memory.used", 2));
  out->free = out->total - out->used - out->reserved;
  return OK;
}
API int nvmlDeviceGetMemoryInfo(Handle handle, Memory *out) { /* the old call counts the reserve */
  MemoryV2 whole;
  int code = nvmlDeviceGetMemoryInfo_v2(handle, &whole);
  if (code) return code;
  *out = (Memory){whole.total, whole.free, whole.used + whole.reserved};
  return OK;
}
API int nvmlDeviceGetEccMode(Handle handle, uint *current, uint *pending) {
  CHECK(handle);
  if (!has_ecc(card_of(handle))) return NOT_SUPPORTED;
  *current = *pending = !strcmp(text_of(card_of(handle), "ecc.mode.current", ""), "Enabled");
  return OK;
}
API int nvmlDeviceGetTotalEccErrors(Handle handle, int uncorrected, int aggregate, ulong64 *out) {
  CHECK(handle);
  if (!has_ecc(card_of(handle))) return NOT_SUPPORTED;
  char key[64];
  snprintf(key, sizeof key, "ecc.errors.%s.%s.total", uncorrected ? "uncorrected" : "corrected",
           aggregate ? "aggregate" : "volatile");
  *out = (ulong64)number_of(card_of(handle), key, 0);
  return OK;
}
API int nvmlDeviceGetMigMode(Handle handle, uint *current, uint *pending) {
  CHECK(handle);
  const char *mode = text_of(card_of(handle), "mig.mode.current", "N/A");
  if (!strcmp(mode, "N/A")) return NOT_SUPPORTED;
  *current = *pending = !strcmp(mode, "Enabled");
  return OK;
}

/* --- links and places --- */
API int nvmlDeviceGetTopologyCommonAncestor(Handle handle, Handle other, int *out) {
  CHECK(handle);
  *out = topology(card_of(handle), card_of(other));
  return OK;
}
API int nvmlDeviceGetP2PStatus(Handle handle, Handle other, int kind, int *out) {
  (void)other, (void)kind;
  CHECK(handle);
  *out = (int)number_of(card_of(handle), "p2p", 3);
  return OK;
}
API int nvmlDeviceGetNvLinkState(Handle handle, uint link, int *active) {
  CHECK(handle);
  int links = (int)number_of(card_of(handle), "nvlink", 0);
  if ((int)link >= links) return links ? INVALID : NOT_SUPPORTED;
  char key[32];
  snprintf(key, sizeof key, "nvlink.%u.down", link);
  *active = !number_of(card_of(handle), key, 0);
  return OK;
}
API int nvmlDeviceGetNvLinkVersion(Handle handle, uint link, uint *out) {
  (void)link;
  CHECK(handle);
  *out = 4;
  return number_of(card_of(handle), "nvlink", 0) ? OK : NOT_SUPPORTED;
}
API int nvmlDeviceGetMemoryAffinity(Handle handle, uint words, unsigned long *set, int scope) {
  (void)scope;
  CHECK(handle);
  memset(set, 0, words * sizeof *set);
  set[0] = 1UL << numa_of(card_of(handle));
  return OK;
}
API int nvmlDeviceGetCpuAffinity(Handle handle, uint words, unsigned long *set) {
  CHECK(handle);
  memset(set, 0, words * sizeof *set);
  int cores = (int)number_of(card_of(handle), "cores_per_numa", 32);
  int first = numa_of(card_of(handle)) * cores;
  for (int core = first; core < first + cores && core / 64 < (int)words; core++)
    set[core / 64] |= 1UL << (core % 64);
  return OK;
}

/* --- processes --- */
static int processes(Handle handle, uint *count, Process *out) {
  CHECK(handle);
  char list[1024], *rest;
  snprintf(list, sizeof list, "%s", text_of(card_of(handle), "proc", ""));
  uint found = 0, room = *count;
  for (char *at = strtok_r(list, ";", &rest); at; at = strtok_r(0, ";", &rest), found++) {
    if (!out || found >= room) continue;
    char *memory = strrchr(at, ':');
    out[found] = (Process){atoi(at), mebibytes(memory ? atof(memory + 1) : 0), -1, -1};
  }
  *count = found;
  return found > room ? TOO_SMALL : OK;
}
API int nvmlDeviceGetComputeRunningProcesses_v3(Handle handle, uint *count, Process *out) {
  return processes(handle, count, out);
}
API int nvmlDeviceGetComputeRunningProcesses_v2(Handle handle, uint *count, Process *out) {
  return processes(handle, count, out);
}
API int nvmlDeviceGetGraphicsRunningProcesses_v3(Handle handle, uint *count, Process *out) {
  (void)out;
  CHECK(handle);
  *count = 0;
  return OK;
}

/* nvidia-smi over an INI file: -L, --query-gpu, --query-compute-apps, --query-remapped-rows,
 * topo -m, nvlink -s and the table, with the real tool's words and exit codes where it fails.
 *
 *   gcc -O1 -o nvidia-smi fake_smi.c
 */
#include <time.h>
#include "fake_gpu.h"

typedef struct { const char *key, *unit, *otherwise; int decimals; } Field;
static const Field FIELDS[] = {
    {"driver_version", "", 0, 0}, {"count", "", 0, 0}, {"name", "", 0, 0}, {"gpu_name", "", 0, 0},
    {"index", "", 0, 0}, {"uuid", "", 0, 0}, {"gpu_uuid", "", 0, 0}, {"pci.bus_id", "", 0, 0},
    {"gpu_bus_id", "", 0, 0}, {"timestamp", "", 0, 0}, {"persistence_mode", "", 0, 0},
    {"memory.free", "MiB", 0, 0},
    {"memory.total", "MiB", "24564", 0}, {"memory.reserved", "MiB", "386", 0},
    {"memory.used", "MiB", "2", 0}, {"utilization.gpu", "%", "0", 0},
    {"utilization.memory", "%", "0", 0}, {"temperature.gpu", "", "30", 0},
    {"temperature.memory", "", "N/A", 0}, {"temperature.gpu.tlimit", "", "N/A", 0},
    {"power.draw", "W", "25.00", 2}, {"power.limit", "W", "450.00", 2},
    {"power.default_limit", "W", "450.00", 2}, {"power.max_limit", "W", "600.00", 2},
    {"power.min_limit", "W", "150.00", 2}, {"pcie.link.gen.max", "", "4", 0},
    {"pcie.link.gen.gpumax", "", "4", 0}, {"pcie.link.gen.current", "", "1", 0},
    {"pcie.link.width.max", "", "16", 0}, {"pcie.link.width.current", "", "16", 0},
    {"pci.device_id", "", "0x268410DE", 0}, {"compute_cap", "", "8.9", 0},
    {"compute_mode", "", "Default", 0}, {"mig.mode.current", "", "N/A", 0},
    {"mig.mode.pending", "", "N/A", 0}, {"ecc.mode.current", "", "N/A", 0},
    {"ecc.mode.pending", "", "N/A", 0}, {"ecc.errors.uncorrected.volatile.total", "", "N/A", 0},
    {"ecc.errors.corrected.volatile.total", "", "N/A", 0},
    {"ecc.errors.uncorrected.aggregate.total", "", "N/A", 0},
    {"ecc.errors.corrected.aggregate.total", "", "N/A", 0},
    {"ecc.errors.uncorrected.aggregate.sram", "", "N/A", 0},
    {"retired_pages.dbe", "", "N/A", 0}, {"retired_pages.sbe", "", "N/A", 0},
    {"retired_pages.pending", "", "N/A", 0}, {"fabric.state", "", "N/A", 0},
    {"vbios_version", "", "95.02.3C.40.B8", 0}, {"pstate", "", "P8", 0},
    {"fan.speed", "%", "0", 0}, {"serial", "", "N/A", 0}, {"clocks.sm", "MHz", "210", 0},
    {"clocks.mem", "MHz", "405", 0}, {"clocks.gr", "MHz", "210", 0},
    {"clocks.max.sm", "MHz", "3105", 0}, {"clocks.max.mem", "MHz", "10501", 0},
    {"clocks_throttle_reasons.active", "", "0x0000000000000001", 0},
    {"clocks_event_reasons.active", "", "0x0000000000000001", 0},
    {"clocks_event_reasons.hw_slowdown", "", "Not Active", 0},
    {"clocks_event_reasons.hw_thermal_slowdown", "", "Not Active", 0},
    {"clocks_event_reasons.hw_power_brake_slowdown", "", "Not Active", 0},
    {"clocks_event_reasons.sw_thermal_slowdown", "", "Not Active", 0},
    {"remapped_rows.pending", "", "N/A", 0}, {"remapped_rows.failure", "", "N/A", 0},
    {"remapped_rows.uncorrectable", "", "N/A", 0}, {"remapped_rows.correctable", "", "N/A", 0},
    {"display_active", "", "Disabled", 0}, {"addressing_mode", "", "None", 0},
};

typedef struct {
  const char *query, *apps, *card;
  int header, units, list, topology, peers, links;
} Options;

static void value_of(int card, const Field *field, char *out, size_t room) {
  const char *key = field->key;
  time_t now = time(0);
  if (!strcmp(key, "index")) snprintf(out, room, "%d", card);
  else if (!strcmp(key, "uuid") || !strcmp(key, "gpu_uuid")) uuid_of(card, out);
  else if (!strcmp(key, "pci.bus_id") || !strcmp(key, "gpu_bus_id")) bus_of(card, out);
  else if (!strcmp(key, "name") || !strcmp(key, "gpu_name"))
    snprintf(out, room, "%s", text_of(card, "name", CARD));
  else if (!strcmp(key, "timestamp")) strftime(out, room, "%Y/%m/%d %H:%M:%S.000", localtime(&now));
  else if (!strcmp(key, "driver_version")) snprintf(out, room, "%s", system_text(key, DRIVER));
  else if (!strcmp(key, "count")) snprintf(out, room, "%d", card_count());
  else if (!strcmp(key, "persistence_mode"))
    snprintf(out, room, "%s", number_of(card, key, 1) ? "Enabled" : "Disabled");
  else if (!strcmp(key, "memory.free"))
    snprintf(out, room, "%.0f", number_of(card, "memory.total", 24564) -
             number_of(card, "memory.used", 2) - number_of(card, "memory.reserved", 386));
  else if (field->decimals && strcmp(text_of(card, key, field->otherwise), "N/A"))
    snprintf(out, room, "%.*f", field->decimals, number_of(card, key, atof(field->otherwise)));
  else snprintf(out, room, "%s", text_of(card, key, field->otherwise));
}

/* Prints one cell; 0 where the field is not known. */
static int print_cell(int card, const char *key, const Options *options) {
  for (size_t i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++) {
    const Field *field = &FIELDS[i];
    if (strcmp(field->key, key)) continue;
    char value[160];
    if (card < 0) {
      printf(*field->unit ? "%s [%s]" : "%s", key, field->unit);
      return 1;
    }
    value_of(card, field, value, sizeof value);
    if (!strcmp(value, "N/A")) printf("[N/A]");
    else printf(*field->unit && options->units ? "%s %s" : "%s", value, field->unit);
    return 1;
  }
  return 0;
}

static int chosen(int card, const Options *options) {
  return !options->card || nth(options->card, 0, -1) == card;
}

static int print_query(const Options *options) {
  for (int card = options->header ? -1 : 0; card < card_count(); card++) {
    if (card >= 0 && !chosen(card, options)) continue;
    char keys[4096], *rest;
    snprintf(keys, sizeof keys, "%s", options->query);
    const char *between = "";
    for (char *key = strtok_r(keys, ",", &rest); key; key = strtok_r(0, ",", &rest)) {
      key = trimmed(key);
      printf("%s", between);
      if (!print_cell(card, key, options)) {
        printf("Field \"%s\" is not a valid field to query.\n\n", key);
        return 2;
      }
      between = ", ";
    }
    puts("");
  }
  return 0;
}

static int print_apps(const Options *options) {
  if (options->header) puts("gpu_uuid, pid, process_name, used_gpu_memory [MiB]");
  for (int card = 0; card < card_count(); card++) {
    char list[1024], uuid[96], *rest;
    snprintf(list, sizeof list, "%s", text_of(card, "proc", ""));
    uuid_of(card, uuid);
    for (char *at = strtok_r(list, ";", &rest); at; at = strtok_r(0, ";", &rest)) {
      char *name = strchr(at, ':'), *memory = strrchr(at, ':');
      if (!name || memory <= name) continue;
      *memory = 0;
      printf("%s, %d, %s, %s%s\n", uuid, atoi(at), name + 1, memory + 1,
             options->units ? " MiB" : "");
    }
  }
  return 0;
}

static const char *path_name(int level) {
  switch (level) {
  case 10: return "PIX";
  case 20: return "PXB";
  case 30: return "PHB";
  case 40: return "NODE";
  }
  return "SYS";
}

static int print_topology(void) {
  for (int card = 0; card < card_count(); card++) printf("\tGPU%d", card);
  puts("\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID");
  for (int card = 0; card < card_count(); card++) {
    printf("GPU%d", card);
    int links = (int)number_of(card, "nvlink", 0);
    for (int other = 0; other < card_count(); other++) {
      if (card == other) printf("\t X ");
      else if (links) printf("\tNV%d", links);
      else printf("\t%s", path_name(topology(card, other)));
    }
    int cores = (int)number_of(card, "cores_per_numa", 32), first = numa_of(card) * cores;
    printf("\t%d-%d\t%d\t\tN/A\n", first, first + cores - 1, numa_of(card));
  }
  return 0;
}

static int print_peers(void) {
  for (int card = 0; card < card_count(); card++) printf("\tGPU%d", card);
  puts("\t");
  for (int card = 0; card < card_count(); card++) {
    printf(" GPU%d", card);
    for (int other = 0; other < card_count(); other++)
      printf("\t%s", card == other ? "X" : number_of(card, "p2p", 3) ? "CNS" : "OK");
    puts("\t");
  }
  puts("\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n  CNS  = Chipset not supported\n");
  return 0;
}

static int print_links(void) {
  for (int card = 0; card < card_count(); card++) {
    char uuid[96], key[32];
    int links = (int)number_of(card, "nvlink", 0);
    uuid_of(card, uuid);
    if (!links) continue;
    printf("GPU %d: %s (UUID: %s)\n", card, text_of(card, "name", CARD), uuid);
    for (int link = 0; link < links; link++) {
      snprintf(key, sizeof key, "nvlink.%d.down", link);
      if (number_of(card, key, 0)) printf("\t Link %d: <inactive>\n", link);
      else printf("\t Link %d: %s GB/s\n", link, text_of(card, "nvlink.rate", "26.562"));
    }
  }
  return 0;
}

static int print_list(void) {
  for (int card = 0; card < card_count(); card++) {
    char uuid[96];
    uuid_of(card, uuid);
    printf("GPU %d: %s (UUID: %s)\n", card, text_of(card, "name", CARD), uuid);
  }
  return 0;
}

static int print_table(void) {
  const char *driver = system_text("driver_version", DRIVER);
  printf("| NVIDIA-SMI %-22s Driver Version: %-14s CUDA Version: %-8s |\n", driver, driver,
         system_text("cuda_version", "12.4"));
  for (int card = 0; card < card_count(); card++) {
    char bus[40];
    bus_of(card, bus);
    printf("| %3d  %-26s %s | %5.0fMiB / %6.0fMiB | %3.0f%% |\n", card, text_of(card, "name", CARD),
           bus, number_of(card, "memory.used", 2), number_of(card, "memory.total", 24564),
           number_of(card, "utilization.gpu", 0));
  }
  return 0;
}

/* The real tool's answer where the driver gives none; 0 where it answers. */
static int print_failure(void) {
  int state = read_ini() ? driver_state() : NO_DRIVER;
  if (state == NO_DRIVER)
    puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure "
         "that the latest NVIDIA driver is installed and running.\n");
  if (state == MISMATCH)
    printf("Failed to initialize NVML: Driver/library version mismatch\n"
           "NVML library version: %.6s\n", system_text("driver_version", DRIVER));
  if (state == OK && !card_count()) {
    puts("No devices were found");
    return 6;
  }
  return state;
}

static int print_lost(const Options *options) {
  for (int card = 0; card < card_count(); card++) {
    int state = card_state(card);
    if (state == OK || !chosen(card, options)) continue;
    char bus[40];
    bus_of(card, bus);
    printf("Unable to determine the device handle for GPU%d: %s: %s\n", card, bus,
           state == LOST ? "GPU is lost.  Reboot the system to recover this GPU" : "Unknown Error");
    return state == LOST ? 15 : 255;
  }
  return 0;
}

/* 0, or the exit code for an option that this tool does not know. */
static int parse(int count, char **words, Options *options) {
  for (int i = 1; i < count; i++) {
    char *word = words[i];
    if (!strncmp(word, "--query-gpu=", 12)) options->query = word + 12;
    else if (!strncmp(word, "--query-remapped-rows=", 22)) options->query = word + 22;
    else if (!strncmp(word, "--query-compute-apps=", 21)) options->apps = word + 21;
    else if (!strncmp(word, "--format=", 9)) {
      options->header = !strstr(word, "noheader");
      options->units = !strstr(word, "nounits");
    } else if (!strcmp(word, "-L") || !strcmp(word, "--list-gpus")) options->list = 1;
    else if (!strcmp(word, "topo")) options->topology = 1;
    else if (!strcmp(word, "-p2p") && i + 1 < count) options->peers = 1, i++;
    else if (!strcmp(word, "nvlink")) options->links = 1;
    else if (!strcmp(word, "-m") || !strcmp(word, "-s")) continue;
    else if (!strncmp(word, "--id=", 5)) options->card = word + 5;
    else if (!strcmp(word, "-i") && i + 1 < count) options->card = words[++i];
    else {
      printf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n", word);
      return 2;
    }
  }
  return 0;
}

int main(int count, char **words) {
  Options options = {.header = 1, .units = 1};
  int code = print_failure();
  if (!code) code = parse(count, words, &options);
  if (!code) code = print_lost(&options);
  if (code) return code;
  if (options.list) return print_list();
  if (options.query) return print_query(&options);
  if (options.apps) return print_apps(&options);
  if (options.peers) return print_peers();
  if (options.topology) return print_topology();
  if (options.links) return print_links();
  return print_table();
}

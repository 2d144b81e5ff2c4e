/* The cards of one host, read from an INI file: /etc/fake_gpu.ini or $FAKE_GPU_INI.
 *
 * Keys are the names that `nvidia-smi --query-gpu` has. Sections:
 *   [system]  driver_version, cuda_version, count, state = ok | no_driver | mismatch | hang[:SECONDS]
 *   [gpu]     defaults of all cards
 *   [gpu.N]   one card; state = ok | lost | unknown
 * Beyond nvidia-smi's names: numa = 0,0,1,1 and switch = 0,0,1,1 (one number a card) make the
 * topology; nvlink = links to every other card, nvlink.N.down = 1 cuts one; p2p = NVML's status
 * (0 works, 3 the driver forbids it); proc = PID:NAME:MIB[;…] are the processes on a card.
 */
#ifndef FAKE_GPU_H
#define FAKE_GPU_H
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SYSTEM = -2, EVERY_CARD = -1, MOST_ENTRIES = 4096 };
/* Return codes of NVML. */
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
       NO_DRIVER = 9, LOST = 15, MISMATCH = 18, UNKNOWN = 999 };

static const char *const DRIVER = "550.127.05";
static const char *const CARD = "NVIDIA GeForce RTX 4090";

static char ini_text[65536];
static struct { int card; char *key, *value; } entries[MOST_ENTRIES];
static int entry_count;

static char *trimmed(char *text) {
  while (isspace((unsigned char)*text)) text++;
  char *end = text + strlen(text);
  while (end > text && isspace((unsigned char)end[-1])) *--end = 0;
  return text;
}

static int section_of(const char *line) {
  if (!strncmp(line, "[gpu.", 5)) return atoi(line + 5);
  return strncmp(line, "[gpu", 4) ? SYSTEM : EVERY_CARD;
}

/* Whether there is an INI file; reads it. */
static int read_ini(void) {
  const char *path = getenv("FAKE_GPU_INI");
  FILE *file = fopen(path ? path : "/etc/fake_gpu.ini", "r");
  if (!file) return 0;
  size_t length = fread(ini_text, 1, sizeof ini_text - 1, file);
  ini_text[length] = 0;
  fclose(file);
  int section = SYSTEM;
  char *rest;
  entry_count = 0;
  for (char *line = strtok_r(ini_text, "\n", &rest); line; line = strtok_r(0, "\n", &rest)) {
    line = trimmed(line);
    char *equals = strchr(line, '=');
    if (*line == '[') {
      section = section_of(line);
    } else if (*line && *line != '#' && equals && entry_count < MOST_ENTRIES) {
      *equals = 0;
      entries[entry_count].card = section;
      entries[entry_count].key = trimmed(line);
      entries[entry_count++].value = trimmed(equals + 1);
    }
  }
  return 1;
}

static const char *entry(int card, const char *key) {
  for (int i = entry_count - 1; i >= 0; i--)
    if (entries[i].card == card && !strcmp(entries[i].key, key)) return entries[i].value;
  return 0;
}

/* A card's own value, else the one of all cards, else `otherwise`. */
static const char *text_of(int card, const char *key, const char *otherwise) {
  const char *own = entry(card, key), *common = entry(EVERY_CARD, key);
  return own ? own : common ? common : otherwise;
}

static double number_of(int card, const char *key, double otherwise) {
  const char *text = text_of(card, key, 0);
  return text ? atof(text) : otherwise;
}

static const char *system_text(const char *key, const char *otherwise) {
  const char *text = entry(SYSTEM, key);
  return text ? text : otherwise;
}

static int card_count(void) { return atoi(system_text("count", "0")); }

/* The number at a place in a list like 0,0,1,1. */
static int nth(const char *list, int place, int otherwise) {
  while (list && place--) {
    list = strchr(list, ',');
    if (list) list++;
  }
  return list && *list ? atoi(list) : otherwise;
}

static int numa_of(int card) { return nth(text_of(card, "numa", "0"), card, 0); }

static void bus_of(int card, char *out) {
  static const int buses[16] = {0x01, 0x25, 0x41, 0x61, 0x81, 0xa1, 0xc1, 0xe1,
                                0x02, 0x26, 0x42, 0x62, 0x82, 0xa2, 0xc2, 0xe2};
  const char *given = text_of(card, "pci.bus_id", 0);
  if (given) snprintf(out, 32, "%s", given);
  else snprintf(out, 32, "00000000:%02X:00.0", buses[card & 15]);
}

/* Differs by host and card, and stays. */
static void uuid_of(int card, char *out) {
  const char *given = text_of(card, "uuid", 0);
  char host[128] = "";
  gethostname(host, 100);
  unsigned long hash = 5381;
  for (char *at = host; *at; at++) hash = hash * 33 + (unsigned char)*at;
  if (given) snprintf(out, 80, "%s", given);
  else
    snprintf(out, 80, "GPU-%08lx-%04x-4a5b-%04x-%012lx", (hash ^ (card * 2654435761u)) & 0xffffffff,
             card + 0x1000, 0x8c00 + card, (hash * (card + 7)) & 0xffffffffffffUL);
}

/* NVML_TOPOLOGY_*: 0 itself, 10 one switch (PIX), 40 one NUMA node (NODE), 50 SYS. */
static int topology(int card, int other) {
  if (card == other) return 0;
  const char *switches = text_of(card, "switch", 0);
  if (switches && nth(switches, card, -1) == nth(switches, other, -2)) return 10;
  if (numa_of(card) != numa_of(other)) return 50;
  return (int)number_of(card, "topo.same_numa", 40);
}

static int card_state(int card) {
  const char *state = text_of(card, "state", "ok");
  return !strcmp(state, "lost") ? LOST : !strcmp(state, "unknown") ? UNKNOWN : OK;
}

/* What the driver answers; hangs where it is told to. */
static int driver_state(void) {
  const char *state = system_text("state", "ok");
  if (!strncmp(state, "hang", 4)) sleep(state[4] ? atoi(state + 5) : 3600);
  return !strcmp(state, "no_driver") ? NO_DRIVER : !strcmp(state, "mismatch") ? MISMATCH : OK;
}
#endif

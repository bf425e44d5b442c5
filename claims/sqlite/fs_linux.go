package sqlite

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Magic numbers of statfs(2), as in the kernel's linux/magic.h and each file system's own source.
const (
	magicTmpfs = unix.TMPFS_MAGIC
	magicZFS   = 0x2fc12fc1
)

// safe file systems keep what fsync acknowledged, and give all processes of the machine one view of byte-range locks and
// of shared mappings, which SQLite's write-ahead log needs (sqlite.org/wal.html). overlayfs is safe in that sense, but a
// container's own layer goes with the container: put the file on a volume.
var safe = map[int64]string{
	unix.EXT4_SUPER_MAGIC:      "ext2, ext3 or ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	magicZFS:                   "zfs",
	unix.OVERLAYFS_SUPER_MAGIC: "overlayfs",
}

var unsafeNames = map[int64]string{
	magicTmpfs:                "tmpfs (lost at reboot)",
	unix.NFS_SUPER_MAGIC:      "nfs",
	unix.SMB_SUPER_MAGIC:      "smb",
	unix.CIFS_SUPER_MAGIC:     "cifs",
	unix.SMB2_SUPER_MAGIC:     "smb2",
	unix.FUSE_SUPER_MAGIC:     "fuse",
	unix.V9FS_MAGIC:           "9p",
	unix.CEPH_SUPER_MAGIC:     "ceph",
	unix.AFS_SUPER_MAGIC:      "afs",
	unix.RAMFS_MAGIC:          "ramfs (lost at reboot)",
	unix.MSDOS_SUPER_MAGIC:    "fat",
	unix.ECRYPTFS_SUPER_MAGIC: "ecryptfs",
}

func statfs(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("sqlite store: file system of %s: %w", path, err)
	}
	return int64(st.Type) & 0xffffffff, nil // 32 bits everywhere, sign-extended on some machines
}

// checkFS looks at the file and at its folder, where the write-ahead log is: a container can mount a single file.
func checkFS(path string, magic func(string) (int64, error), tmpfs bool) error {
	if magic == nil {
		magic = statfs
	}
	for _, p := range []string{filepath.Dir(path), path} {
		m, err := magic(p)
		if err != nil {
			return err
		}
		if _, ok := safe[m]; ok || tmpfs && m == magicTmpfs {
			continue
		}
		name, ok := unsafeNames[m]
		if !ok {
			name = fmt.Sprintf("unknown (magic 0x%x)", m)
		}
		return &SettingError{"file system of " + p, name, "a local one: ext2/3/4, xfs, btrfs, zfs or overlayfs"}
	}
	return nil
}

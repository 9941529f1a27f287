import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;

/** Prints the ACL of every node but ZooKeeper's own: Acls HOST:PORT. */
class Acls {
    public static void main(String[] args) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        try (ZooKeeper zk = new ZooKeeper(args[0], 30_000, e -> {
            if (e.getState() == KeeperState.SyncConnected) connected.countDown();
        })) {
            connected.await();
            walk(zk, "/");
        }
    }

    private static void walk(ZooKeeper zk, String path) throws Exception {
        System.out.println(path + " " + zk.getACL(path, null));
        for (String name : zk.getChildren(path, false)) {
            if (!path.equals("/") || !name.equals("zookeeper")) walk(zk, (path.equals("/") ? "" : path) + "/" + name);
        }
    }
}

"""Words in class, id, role and other attributes that say what an element is for.

A row is a meaning and has a bit of its own; a word may stand in several rows. The rows were written by hand, from what
pages in several languages use and from what readers' extractors look for; what a meaning is worth is learned.
"""

WORDS: dict[str, str] = {
    "article": (
        "article articles artikel articulo articolo story entry hentry post posts postid single news blog opinion "
        "publication newsarticle blogposting"
    ),
    "body": (
        "body text txt copy prose paragraph paragraphs richtext rich wysiwyg markdown editor articlebody bodytext "
        "texto corps cuerpo testo inhalt contenu contenido contenuto conteudo"
    ),
    "content": "content contents maincontent main primary center centre central middle",
    "title": "title titles headline headlines heading subtitle subheadline kicker dek overline titre titulo titel",
    "lead": "lead lede intro summary excerpt standfirst abstract teasertext chapo description desc subhead",
    "comment": (
        "comment comments commenter commentlist commentbody disqus reply replies respond discussion discuss "
        "kommentar kommentare commentaire commentaires comentario comentarios commento commenti reactions livefyre"
    ),
    "social": (
        "share shares sharing sharethis sharedaddy social socials facebook twitter tweet pinterest whatsapp "
        "linkedin telegram instagram follow addthis addtoany teilen partager compartir condividi like likes"
    ),
    "related": (
        "related relation recommend recommended recommendation recommendations similar popular trending latest "
        "recent more most mostread read also further suggested outbrain taboola zergnet reading verwandte "
        "relacionadas relacionados similaires relatedarticles relatedcontent relatedlinks relatedposts relatedtopics "
        "seealso"
    ),
    "teaser": (
        "teaser teasers card cards tile tiles promo promos promoted featured feature carousel slider slide slides "
        "slick swiper owl block grid box boxes module thumb thumbs"
    ),
    "nav": (
        "nav navi navigation navbar menu menus submenu megamenu breadcrumb breadcrumbs crumb crumbs pagination "
        "pager paging paginate tabs tab links linklist toc sitemap topbar toolbar skip dropdown hamburger prev "
        "next previous jump index"
    ),
    "side": (
        "sidebar sidebars side widget widgets column aside secondary complementary right left rail siderail "
        "sidebox barra lateral"
    ),
    "foot": "footer foot bottom copyright legal colophon imprint impressum contentinfo disclaimer end below",
    "head": "header head masthead top banner logo branding brand site global",
    "ad": (
        "ad ads adv advert adverts advertisement advertising advertorial sponsor sponsored sponsors dfp adsense "
        "adslot gpt promotion promotions commercial werbung anzeige publicidad pub publi partner partners "
        "affiliate"
    ),
    "consent": (
        "cookie cookies consent gdpr privacy modal popup overlay dialog notice notification alert alerts paywall "
        "lightbox toast subscribe subscription subscriptions newsletter signup abo"
    ),
    "meta": (
        "meta metadata byline author authors authored auteur autor autore date dates datum time timestamp info "
        "tags tag tagged category categories cat keywords source sources bio profile dateline updated published "
        "publish credit credits details contributor writer reporter"
    ),
    "form": (
        "form forms login signin register registration search searchform searchbox email input field contact "
        "captcha account rating ratings stars vote votes poll button btn buttons"
    ),
    "media": (
        "caption captions image images img photo photos foto figure gallery galleries video videos player media "
        "thumbnail picture pic slideshow lightgallery audio podcast embed"
    ),
    "hidden": (
        "hidden hide none invisible offscreen visuallyhidden collapsed collapse print noprint sr assistive template"
    ),
    "list": "list lists listing items item feed archive archives results result row rows stream",
    "thread": (
        "thread threads topic topics message messages forum postbody postcontent answer answers question questions "
        "answercell"
    ),
    "user": "user users username avatar member members signature sig badge reputation rank poster postprofile userinfo",
    "product": "product products price prices cart basket shop sku buy review reviews stock delivery shipping",
    "site": "wrapper wrap container page layout outer inner canvas root app",
}


def word_bits(first: int) -> dict[str, int]:
    """The bits of each word, its rows' numbers counted from `first`."""
    bits: dict[str, int] = {}
    for bit, row in enumerate(WORDS.values(), first):
        for word in row.split():
            bits[word] = bits.get(word, 0) | 1 << bit
    return bits

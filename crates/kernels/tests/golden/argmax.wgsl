// argmax.t256
var<workgroup> shared_v24: array<f32, 256>;
var<workgroup> shared_v28: array<u32, 256>;
@group(0) @binding(3) var<storage, read> v13: array<u32>;
@group(0) @binding(2) var<storage, read> v9: array<u32>;
@group(0) @binding(1) var<storage, read_write> v5: array<u32>;
@group(0) @binding(0) var<storage, read> v1: array<f32>;
@compute @workgroup_size(256, 1, 1)
fn argmax(@builtin(workgroup_id) v865: vec3<u32>, @builtin(local_invocation_id) v867: vec3<u32>) {
let v899 = &v13;
let v900 = &v9;
let v901 = &v5;
let v902 = &v1;
let v3 = u32(0);
let v866 = v865[0];
let v22 = &(*v899)[v3];
let v23 = *v22;
let v825 = &shared_v24;
let v826 = &shared_v28;
let v34 = u32(1);
let v36 = &(*v899)[v34];
let v37 = *v36;
let v38 = u32(v37);
let v42 = &(*v900)[v38];
let v43 = *v42;
let v44 = v866 < v43;
if v44 {
let v45 = f32(-3.4028234663852886e38);
var<function> v827_store: f32;
let v827 = &v827_store;
*v827 = v45;
let v48 = u32(4294967294);
var<function> v828_store: u32;
let v828 = &v828_store;
*v828 = v48;
let v51 = false;
var<function> v829_store: bool;
let v829 = &v829_store;
*v829 = v51;
let v868 = v867[0];
let v55 = u32(256);
for(var v56: u32 = v868; v56 < v23; v56 += v55) {
let v58 = v866 * v23;
let v59 = v58 + v56;
let v60 = u32(v59);
let v64 = &(*v902)[v60];
let v65 = *v64;
let v66 = *v829;
let v67 = true;
var<function> v831_store: bool;
let v831 = &v831_store;
if v66 {
*v831 = v67;
} else {
let v70 = bitcast<u32>(v65);
let v71 = u32(2139095040);
let v72 = v70 & v71;
let v74 = v72 == v71;
*v831 = v74;
}
let v75 = *v831;
*v829 = v75;
let v76 = *v827;
let v77 = v65 > v76;
var<function> v832_store: bool;
let v832 = &v832_store;
if v77 {
*v832 = v67;
} else {
let v81 = *v828;
let v83 = v81 == v48;
*v832 = v83;
}
let v84 = *v832;
if v84 {
*v827 = v65;
*v828 = v56;
}
}
let v86 = u32(v868);
let v90 = &(*v825)[v86];
let v91 = *v827;
*v90 = v91;
let v92 = *v829;
let v93 = u32(4294967295);
let v94 = *v828;
let v95 = select(v94, v93, v92);
let v101 = &(*v826)[v86];
*v101 = v95;
workgroupBarrier();
let v103 = u32(128);
let v104 = v868 < v103;
if v104 {
let v109 = v868 + v103;
let v110 = u32(v109);
let v114 = &(*v825)[v110];
let v115 = *v114;
let v120 = *v90;
let v121 = v115 > v120;
let v122 = true;
var<function> v833_store: bool;
let v833 = &v833_store;
if v121 {
*v833 = v122;
} else {
let v129 = *v114;
let v134 = *v90;
let v135 = v129 == v134;
var<function> v834_store: bool;
let v834 = &v834_store;
if v135 {
let v139 = &(*v826)[v110];
let v140 = *v139;
let v145 = *v101;
let v146 = v140 < v145;
*v834 = v146;
} else {
*v834 = v51;
}
let v149 = *v834;
*v833 = v149;
}
let v154 = *v101;
let v156 = v154 != v93;
var<function> v835_store: bool;
let v835 = &v835_store;
if v156 {
let v157 = *v833;
var<function> v836_store: bool;
let v836 = &v836_store;
if v157 {
*v836 = v122;
} else {
let v164 = &(*v826)[v110];
let v165 = *v164;
let v167 = v165 == v93;
*v836 = v167;
}
let v169 = *v836;
*v835 = v169;
} else {
*v835 = v51;
}
let v171 = *v835;
if v171 {
let v176 = *v114;
*v90 = v176;
let v184 = &(*v826)[v110];
let v185 = *v184;
*v101 = v185;
}
}
workgroupBarrier();
let v191 = u32(64);
let v192 = v868 < v191;
if v192 {
let v197 = v868 + v191;
let v198 = u32(v197);
let v202 = &(*v825)[v198];
let v203 = *v202;
let v208 = *v90;
let v209 = v203 > v208;
let v210 = true;
var<function> v837_store: bool;
let v837 = &v837_store;
if v209 {
*v837 = v210;
} else {
let v217 = *v202;
let v222 = *v90;
let v223 = v217 == v222;
var<function> v838_store: bool;
let v838 = &v838_store;
if v223 {
let v227 = &(*v826)[v198];
let v228 = *v227;
let v233 = *v101;
let v234 = v228 < v233;
*v838 = v234;
} else {
*v838 = v51;
}
let v237 = *v838;
*v837 = v237;
}
let v242 = *v101;
let v244 = v242 != v93;
var<function> v839_store: bool;
let v839 = &v839_store;
if v244 {
let v245 = *v837;
var<function> v840_store: bool;
let v840 = &v840_store;
if v245 {
*v840 = v210;
} else {
let v252 = &(*v826)[v198];
let v253 = *v252;
let v255 = v253 == v93;
*v840 = v255;
}
let v257 = *v840;
*v839 = v257;
} else {
*v839 = v51;
}
let v259 = *v839;
if v259 {
let v264 = *v202;
*v90 = v264;
let v272 = &(*v826)[v198];
let v273 = *v272;
*v101 = v273;
}
}
workgroupBarrier();
let v279 = u32(32);
let v280 = v868 < v279;
if v280 {
let v285 = v868 + v279;
let v286 = u32(v285);
let v290 = &(*v825)[v286];
let v291 = *v290;
let v296 = *v90;
let v297 = v291 > v296;
let v298 = true;
var<function> v841_store: bool;
let v841 = &v841_store;
if v297 {
*v841 = v298;
} else {
let v305 = *v290;
let v310 = *v90;
let v311 = v305 == v310;
var<function> v842_store: bool;
let v842 = &v842_store;
if v311 {
let v315 = &(*v826)[v286];
let v316 = *v315;
let v321 = *v101;
let v322 = v316 < v321;
*v842 = v322;
} else {
*v842 = v51;
}
let v325 = *v842;
*v841 = v325;
}
let v330 = *v101;
let v332 = v330 != v93;
var<function> v843_store: bool;
let v843 = &v843_store;
if v332 {
let v333 = *v841;
var<function> v844_store: bool;
let v844 = &v844_store;
if v333 {
*v844 = v298;
} else {
let v340 = &(*v826)[v286];
let v341 = *v340;
let v343 = v341 == v93;
*v844 = v343;
}
let v345 = *v844;
*v843 = v345;
} else {
*v843 = v51;
}
let v347 = *v843;
if v347 {
let v352 = *v290;
*v90 = v352;
let v360 = &(*v826)[v286];
let v361 = *v360;
*v101 = v361;
}
}
workgroupBarrier();
let v367 = u32(16);
let v368 = v868 < v367;
if v368 {
let v373 = v868 + v367;
let v374 = u32(v373);
let v378 = &(*v825)[v374];
let v379 = *v378;
let v384 = *v90;
let v385 = v379 > v384;
let v386 = true;
var<function> v845_store: bool;
let v845 = &v845_store;
if v385 {
*v845 = v386;
} else {
let v393 = *v378;
let v398 = *v90;
let v399 = v393 == v398;
var<function> v846_store: bool;
let v846 = &v846_store;
if v399 {
let v403 = &(*v826)[v374];
let v404 = *v403;
let v409 = *v101;
let v410 = v404 < v409;
*v846 = v410;
} else {
*v846 = v51;
}
let v413 = *v846;
*v845 = v413;
}
let v418 = *v101;
let v420 = v418 != v93;
var<function> v847_store: bool;
let v847 = &v847_store;
if v420 {
let v421 = *v845;
var<function> v848_store: bool;
let v848 = &v848_store;
if v421 {
*v848 = v386;
} else {
let v428 = &(*v826)[v374];
let v429 = *v428;
let v431 = v429 == v93;
*v848 = v431;
}
let v433 = *v848;
*v847 = v433;
} else {
*v847 = v51;
}
let v435 = *v847;
if v435 {
let v440 = *v378;
*v90 = v440;
let v448 = &(*v826)[v374];
let v449 = *v448;
*v101 = v449;
}
}
workgroupBarrier();
let v455 = u32(8);
let v456 = v868 < v455;
if v456 {
let v461 = v868 + v455;
let v462 = u32(v461);
let v466 = &(*v825)[v462];
let v467 = *v466;
let v472 = *v90;
let v473 = v467 > v472;
let v474 = true;
var<function> v849_store: bool;
let v849 = &v849_store;
if v473 {
*v849 = v474;
} else {
let v481 = *v466;
let v486 = *v90;
let v487 = v481 == v486;
var<function> v850_store: bool;
let v850 = &v850_store;
if v487 {
let v491 = &(*v826)[v462];
let v492 = *v491;
let v497 = *v101;
let v498 = v492 < v497;
*v850 = v498;
} else {
*v850 = v51;
}
let v501 = *v850;
*v849 = v501;
}
let v506 = *v101;
let v508 = v506 != v93;
var<function> v851_store: bool;
let v851 = &v851_store;
if v508 {
let v509 = *v849;
var<function> v852_store: bool;
let v852 = &v852_store;
if v509 {
*v852 = v474;
} else {
let v516 = &(*v826)[v462];
let v517 = *v516;
let v519 = v517 == v93;
*v852 = v519;
}
let v521 = *v852;
*v851 = v521;
} else {
*v851 = v51;
}
let v523 = *v851;
if v523 {
let v528 = *v466;
*v90 = v528;
let v536 = &(*v826)[v462];
let v537 = *v536;
*v101 = v537;
}
}
workgroupBarrier();
let v543 = u32(4);
let v544 = v868 < v543;
if v544 {
let v549 = v868 + v543;
let v550 = u32(v549);
let v554 = &(*v825)[v550];
let v555 = *v554;
let v560 = *v90;
let v561 = v555 > v560;
let v562 = true;
var<function> v853_store: bool;
let v853 = &v853_store;
if v561 {
*v853 = v562;
} else {
let v569 = *v554;
let v574 = *v90;
let v575 = v569 == v574;
var<function> v854_store: bool;
let v854 = &v854_store;
if v575 {
let v579 = &(*v826)[v550];
let v580 = *v579;
let v585 = *v101;
let v586 = v580 < v585;
*v854 = v586;
} else {
*v854 = v51;
}
let v589 = *v854;
*v853 = v589;
}
let v594 = *v101;
let v596 = v594 != v93;
var<function> v855_store: bool;
let v855 = &v855_store;
if v596 {
let v597 = *v853;
var<function> v856_store: bool;
let v856 = &v856_store;
if v597 {
*v856 = v562;
} else {
let v604 = &(*v826)[v550];
let v605 = *v604;
let v607 = v605 == v93;
*v856 = v607;
}
let v609 = *v856;
*v855 = v609;
} else {
*v855 = v51;
}
let v611 = *v855;
if v611 {
let v616 = *v554;
*v90 = v616;
let v624 = &(*v826)[v550];
let v625 = *v624;
*v101 = v625;
}
}
workgroupBarrier();
let v631 = u32(2);
let v632 = v868 < v631;
if v632 {
let v637 = v868 + v631;
let v638 = u32(v637);
let v642 = &(*v825)[v638];
let v643 = *v642;
let v648 = *v90;
let v649 = v643 > v648;
let v650 = true;
var<function> v857_store: bool;
let v857 = &v857_store;
if v649 {
*v857 = v650;
} else {
let v657 = *v642;
let v662 = *v90;
let v663 = v657 == v662;
var<function> v858_store: bool;
let v858 = &v858_store;
if v663 {
let v667 = &(*v826)[v638];
let v668 = *v667;
let v673 = *v101;
let v674 = v668 < v673;
*v858 = v674;
} else {
*v858 = v51;
}
let v677 = *v858;
*v857 = v677;
}
let v682 = *v101;
let v684 = v682 != v93;
var<function> v859_store: bool;
let v859 = &v859_store;
if v684 {
let v685 = *v857;
var<function> v860_store: bool;
let v860 = &v860_store;
if v685 {
*v860 = v650;
} else {
let v692 = &(*v826)[v638];
let v693 = *v692;
let v695 = v693 == v93;
*v860 = v695;
}
let v697 = *v860;
*v859 = v697;
} else {
*v859 = v51;
}
let v699 = *v859;
if v699 {
let v704 = *v642;
*v90 = v704;
let v712 = &(*v826)[v638];
let v713 = *v712;
*v101 = v713;
}
}
workgroupBarrier();
let v719 = u32(1);
let v720 = v868 < v719;
if v720 {
let v725 = v868 + v719;
let v726 = u32(v725);
let v730 = &(*v825)[v726];
let v731 = *v730;
let v736 = *v90;
let v737 = v731 > v736;
let v738 = true;
var<function> v861_store: bool;
let v861 = &v861_store;
if v737 {
*v861 = v738;
} else {
let v745 = *v730;
let v750 = *v90;
let v751 = v745 == v750;
var<function> v862_store: bool;
let v862 = &v862_store;
if v751 {
let v755 = &(*v826)[v726];
let v756 = *v755;
let v761 = *v101;
let v762 = v756 < v761;
*v862 = v762;
} else {
*v862 = v51;
}
let v765 = *v862;
*v861 = v765;
}
let v770 = *v101;
let v772 = v770 != v93;
var<function> v863_store: bool;
let v863 = &v863_store;
if v772 {
let v773 = *v861;
var<function> v864_store: bool;
let v864 = &v864_store;
if v773 {
*v864 = v738;
} else {
let v780 = &(*v826)[v726];
let v781 = *v780;
let v783 = v781 == v93;
*v864 = v783;
}
let v785 = *v864;
*v863 = v785;
} else {
*v863 = v51;
}
let v787 = *v863;
if v787 {
let v792 = *v730;
*v90 = v792;
let v800 = &(*v826)[v726];
let v801 = *v800;
*v101 = v801;
}
}
workgroupBarrier();
let v807 = u32(0);
let v808 = v868 == v807;
if v808 {
let v813 = &(*v826)[v3];
let v814 = *v813;
let v815 = u32(v866);
let v819 = &(*v901)[v815];
*v819 = v814;
}
}
return;
}
